"""Requests whose bodies are unusual JSON: every field as null, enumerations, times, levels.

Entries as in `corpus`. In Go, which nats-server is written in, null leaves a field as it was.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, pub

CLIENT_REQUESTS = Path(__file__).with_name("client_requests.json")
STREAM_FIELDS = (
    "name", "description", "subjects", "retention", "max_consumers", "max_msgs", "max_bytes",
    "max_age", "max_msgs_per_subject", "max_msg_size", "discard", "storage", "num_replicas",
    "no_ack", "duplicate_window", "placement", "mirror", "sources", "compression", "first_seq",
    "subject_transform", "republish", "allow_direct", "mirror_direct", "discard_new_per_subject",
    "sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs", "consumer_limits", "allow_msg_ttl",
    "subject_delete_marker_ttl", "allow_msg_counter", "allow_atomic", "allow_msg_schedules",
    "persist_mode", "allow_batched", "metadata", "pedantic", "template_owner",
)  # fmt: skip
INNER_FIELDS = {
    "placement": ("cluster", "tags", "preferred"),
    "subject_transform": ("src", "dest"),
    "republish": ("src", "dest", "headers_only"),
    "consumer_limits": ("inactive_threshold", "max_ack_pending"),
}
CONSUMER_FIELDS = (
    "durable_name", "name", "description", "deliver_policy", "opt_start_seq", "opt_start_time",
    "ack_policy", "ack_wait", "max_deliver", "backoff", "filter_subject", "filter_subjects",
    "replay_policy", "rate_limit_bps", "sample_freq", "max_waiting", "max_ack_pending",
    "flow_control", "headers_only", "max_batch", "max_expires", "max_bytes", "deliver_subject",
    "deliver_group", "idle_heartbeat", "inactive_threshold", "num_replicas", "mem_storage",
    "direct", "sourcing", "metadata", "pause_until", "priority_policy", "priority_groups",
    "priority_timeout",
)  # fmt: skip
READS = ("STREAM.INFO.", "STREAM.LIST", "CONSUMER.LIST.")
PULL_FIELDS = (
    "batch", "expires", "no_wait", "max_bytes", "idle_heartbeat", "group", "min_pending",
    "min_ack_pending", "id", "priority",
)  # fmt: skip
GET_FIELDS = (
    "seq", "last_by_subj", "next_by_subj", "start_time", "batch", "max_bytes", "multi_last",
    "up_to_seq", "up_to_time", "no_hdr",
)  # fmt: skip
OTHER_FIELDS = {
    "STREAM.INFO.N": ("offset", "deleted_details", "subjects_filter"),
    "STREAM.NAMES": ("offset", "subject"),
    "STREAM.LIST": ("offset", "subject"),
    "CONSUMER.NAMES.N": ("offset",),
    "CONSUMER.LIST.N": ("offset",),
    "CONSUMER.PAUSE.N.c": ("pause_until",),
    "CONSUMER.RESET.N.c": ("seq",),
    "CONSUMER.UNPIN.N.c": ("group",),
    "STREAM.SNAPSHOT.N": (
        "deliver_subject", "no_consumers", "chunk_size", "window_size", "jsck",
    ),
    "STREAM.LEADER.STEPDOWN.N": ("placement",),
    "STREAM.PEER.REMOVE.N": ("peer",),
}  # fmt: skip
ENUMERATIONS = {
    "STREAM.UPDATE.N": ("retention", "storage", "discard", "compression", "persist_mode"),
    "CONSUMER.CREATE.N.c": ("deliver_policy", "ack_policy", "replay_policy", "priority_policy"),
}
NUMBERS = (
    "max_ack_pending", "max_deliver", "max_waiting", "max_batch", "max_expires", "max_bytes",
    "idle_heartbeat", "ack_wait",
)  # fmt: skip
NOT_VALUES = ("x", "", 5, True, {}, [], 'a"b', "NEW", "é\n", {"a": 1}, [1, 2])
TIMES = (
    "2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00.000000001Z",
    "2024-01-01T00:00:00.123456789Z",
    "2024-01-01T00:00:00.1234567899999Z",
    "2024-01-01T00:00:00.100Z",
    "2024-01-01T00:00:00,5Z",
    "2024-01-01T02:00:00+02:00",
    "2024-01-01T02:00:00.5+02:30",
    "2024-01-01T00:00:00-00:00",
    "2024-01-01T00:00:00+23:59",
    "2024-01-01T00:00:00+02:60",
    "2024-01-01T0:00:00Z",
    "2024-02-29T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00.5Z",
    "0000-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "2200-01-01T00:00:00.000000123Z",
)
NO_TIMES = (
    "", "x", 5, True, {}, [], "2024-01-01t00:00:00z", "2024-01-01 00:00:00Z", "2024-01-01",
    "2024-01-01T00:00:00", "2024-01-01T00:00Z", "2024-01-01T24:00:00Z", "2024-01-01T00:60:00Z",
    "2024-01-01T23:59:60Z", "2024-02-30T00:00:00Z", "2023-02-29T00:00:00Z", "2024-00-01T00:00:00Z",
    "2024-13-01T00:00:00Z", "2024-1-1T00:00:00Z", "10000-01-01T00:00:00Z", "2024-01-01T00:00:00.Z",
    "2024-01-01T00:00:00+0200", "2024-01-01T00:00:00+02", "2024-01-01T00:00:00+25:00",
    "2024-01-01T00:00:00+02:61", "2024-01-01T00:00:00*02:00", " 2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00Zx", "2024-01-01T00:00:00+02:00:30", "2024-W01-1T00:00:00Z",
    "2024-01-01T00:00:00.\uff15Z", '2024"-01-01T00:00:00Z',
)  # fmt: skip


def _pull(body: Any) -> Entry:
    return ("pull", "CONSUMER.MSG.NEXT.N.c", body, None)


def _direct(body: Any, subject: str = "") -> Entry:
    return ("direct", f"DIRECT.GET.N{subject}", body, None)


def _stream_and_consumer() -> Iterator[Entry]:
    yield create("N", subjects=["n.*"], allow_direct=True)
    for i in range(40):
        yield pub(f"n.{i % 3}", b"%d" % i)
    yield consumer("N", "c", ack_policy="explicit")


def nulls_in_configurations() -> Iterator[Entry]:
    """Every field of streams and consumers as null, and null inside of lists and maps."""
    for field in STREAM_FIELDS:
        yield api("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], field: None})
        yield api("STREAM.DELETE.M")
    yield create("N", subjects=["n"])
    for field in STREAM_FIELDS:
        yield api("STREAM.UPDATE.N", {"name": "N", "subjects": ["n"], field: None})
    for field, inner in INNER_FIELDS.items():
        for name in inner:
            yield create("M", **{field: {name: None}})
            yield api("STREAM.DELETE.M")
    for config in ({"subjects": [None]}, {"subjects": ["m", None]}, {"metadata": {"a": None}}):
        yield create("M", **config)
        yield api("STREAM.DELETE.M")
    for field in CONSUMER_FIELDS:
        config = {"name": "c", field: None}
        yield api("CONSUMER.CREATE.N.c", {"stream_name": "N", "config": config})
        yield api("CONSUMER.DELETE.N.c")
    for field in ("stream_name", "config", "action", "ACTION", "pedantic"):
        body = {"stream_name": "N", "config": {"name": "c"}, field: None}
        yield api("CONSUMER.CREATE.N.c", body)
        yield api("CONSUMER.DELETE.N.c")
    for field in ("backoff", "filter_subjects", "priority_groups"):
        config = {"name": "c", field: [None]}
        yield api("CONSUMER.CREATE.N.c", {"stream_name": "N", "config": config})
        yield api("CONSUMER.DELETE.N.c")


def nulls_in_requests() -> Iterator[Entry]:
    """Every field of every other request as null; names in capitals; several objects in a body."""
    yield from _stream_and_consumer()
    for field in PULL_FIELDS:
        yield _pull({"batch": 1, "no_wait": True, field: None})
    for body in (b"null", b"{}", b"[]", b' {"batch":1} ', b'{"batch":2,"batch":1,"no_wait":true}'):
        yield _pull(body)
    for body in (b'{"batch":"1"}', b'{"batch":1.5}', b'{"batch":1,"no_wait":true} x'):
        yield _pull(body)
    yield _pull({"BATCH": 2, "No_Wait": True, "something": {"else": None}})
    for field in GET_FIELDS:
        asked = {"last_by_subj": "n.1"} if field == "seq" else {"seq": 1}
        for body in ({**asked, field: None}, {field: None}):
            yield api("STREAM.MSG.GET.N", body)
            yield _direct(body)
        yield _direct({field: None}, ".n.1")
    yield api("STREAM.MSG.GET.N", b"null")
    for body in (b"null", b"{}", b"x", b'{"seq":1}{"seq":2}', b'{"seq":1} x', b'{"SEQ":1}'):
        yield _direct(body)
        yield _direct(body, ".n.1")
    yield _direct({"multi_last": [None]})
    yield _direct({"multi_last": ["n.1", None]})
    for subject, fields in OTHER_FIELDS.items():
        for field in fields:
            yield api(subject, {field: None})
        yield api(subject, b"null")
        if not subject.startswith(READS):  # these are asked again as long as any text differs
            yield api(subject, b"[]")
        if subject != "CONSUMER.UNPIN.N.c":
            yield api(subject, b"{")
    for field in ("seq", "no_erase"):
        yield api("STREAM.MSG.DELETE.N", {"seq": 1, field: None})
    for subject in ("STREAM.MSG.DELETE.N", "STREAM.INFO.N", "CONSUMER.INFO.N.c", "INFO"):
        yield api(subject, b"null")
    for field in ("seq", "filter", "keep"):
        yield api("STREAM.PURGE.N", {field: None})
        yield pub("n.1")
    for subject in ("STREAM.PURGE.N", "CONSUMER.DELETE.N.c", "STREAM.DELETE.N"):
        yield api(subject, b"null")


def enumerations() -> Iterator[Entry]:
    """What is no value of an enumeration, of every type, also under a name in capitals."""
    yield create("N", subjects=["n"])
    for field in ENUMERATIONS["STREAM.UPDATE.N"]:
        for value in NOT_VALUES:
            yield api("STREAM.UPDATE.N", {"name": "N", "subjects": ["n"], field: value})
        yield api("STREAM.UPDATE.N", {"name": "N", "subjects": ["n"], field.upper(): "x"})
    for field in ENUMERATIONS["CONSUMER.CREATE.N.c"]:
        for value in NOT_VALUES:
            config = {"name": "c", field: value}
            yield api("CONSUMER.CREATE.N.c", {"stream_name": "N", "config": config})
        config = {"name": "c", field.upper(): "x"}
        yield api("CONSUMER.CREATE.N.c", {"stream_name": "N", "config": config})
    for action in ("x", "CREATE", 5, True, {}, [], 'a"b'):
        body = {"stream_name": "N", "config": {"name": "c"}, "action": action}
        yield api("CONSUMER.CREATE.N.c", body)


def times() -> Iterator[Entry]:
    """Times in every request that has one: nanoseconds, zones, and what is no time."""
    yield create("N", subjects=["n.*"], allow_direct=True)
    for i in range(3):
        yield pub(f"n.{i}")
    yield consumer("N", "c")
    for time in (*TIMES, *NO_TIMES):
        for name, config in {
            "started": {"deliver_policy": "by_start_time", "opt_start_time": time},
            "wrong": {"opt_start_time": time},
            "paused": {"pause_until": time},
        }.items():
            yield consumer("N", name, **config)
            yield api(f"CONSUMER.INFO.N.{name}")
            yield api(f"CONSUMER.DELETE.N.{name}")
        yield api("CONSUMER.PAUSE.N.c", {"pause_until": time})
        yield api("CONSUMER.INFO.N.c")
        yield api("CONSUMER.PAUSE.N.c")
        yield api("CONSUMER.INFO.N.c")
        yield api("STREAM.MSG.GET.N", {"start_time": time})
        yield api("STREAM.MSG.GET.N", {"seq": 1, "up_to_time": time})
        yield _direct({"start_time": time})
        yield _direct({"start_time": time, "batch": 1})
        yield _direct({"multi_last": ["n.>"], "up_to_time": time, "batch": 1})
    yield api("CONSUMER.PAUSE.N.c", {"pause_until": "9999-12-31T23:59:59Z"})
    yield api("CONSUMER.PAUSE.N.c", {"pause_until": "9999-12-31T23:59:59-02:00"})
    for zone in ("02:00:00+02:00", "00:00:00Z", "02:30:00+02:30", "00:00:01Z"):
        time = f"2024-01-01T{zone}"
        yield consumer("N", "same", deliver_policy="by_start_time", opt_start_time=time)


def required_levels() -> Iterator[Entry]:
    """`Nats-Required-Api-Level` as an integer of Go's, and as anything else."""
    yield create("N", subjects=["n.*"], allow_direct=True)
    yield pub("n.1")
    yield consumer("N", "c", deliver_policy="new")
    levels = ("", " ", "0", " 0", "00", "+0", "-0", "-1", "-99", "0.0", "x", "-", "+", "1x", "99")
    for level in (*levels, "9999999999999999999999"):
        headers = {"Nats-Required-Api-Level": level}
        yield api("STREAM.NAMES", b"", headers)
        yield api("STREAM.LIST", b"", headers)
        yield api("CONSUMER.LIST.N", b"", headers)
        yield ("direct", "DIRECT.GET.N", {"seq": 1}, headers)
        yield ("direct", "CONSUMER.MSG.NEXT.N.c", {"no_wait": True, "batch": 1}, headers)


def names_and_order_of_checks() -> Iterator[Entry]:
    """What is wrong with an update's name is said after what is wrong with the rest of it."""
    yield create("N", subjects=["n"])
    for name, body in (
        ("N", {"name": "a/b"}),
        ("N", {"name": None}),
        ("N", {"name": "M", "max_age": -1}),
        ("M", {"name": "MM", "max_age": -1}),
        ("M", {"name": "MM"}),
        ("M", {"name": "M"}),
        ("N", {"name": "M", "num_replicas": 3}),
        ("M", {"name": "M", "num_replicas": 3}),
        ("N", {"name": "N", "num_replicas": 3}),
    ):
        yield api(f"STREAM.UPDATE.{name}", body)
        yield api(f"STREAM.CREATE.{name}", body)


def pedantic() -> Iterator[Entry]:
    """Values that nats-server changes in silence, and refuses to if asked to be pedantic."""
    values: dict[str, tuple[Any, ...]] = dict.fromkeys(NUMBERS, (-2, -1, 0, 1))
    values["inactive_threshold"] = (-2, -1, 0, 5 * SECOND, 20 * SECOND)
    values["backoff"] = ([0], [SECOND, 2 * SECOND], [30 * SECOND])
    bases: tuple[dict[str, Any], ...] = (
        {"durable_name": "c", "ack_policy": "explicit"},
        {"durable_name": "c"},
        {"name": "c", "ack_policy": "all", "deliver_subject": "d"},
        {"name": "c", "deliver_subject": "d"},
    )
    limits: tuple[dict[str, int], ...] = (
        {},
        {"max_ack_pending": 20},
        {"inactive_threshold": 10 * SECOND},
        {"max_ack_pending": 20, "inactive_threshold": 10 * SECOND},
    )
    for bounds in limits:
        yield create("N", subjects=["n"], consumer_limits=bounds)
        for base in bases:
            for field, tried in values.items():
                for value in tried:
                    for pedantic in (False, True):
                        config = {**base, field: value}
                        body = {"stream_name": "N", "config": config, "pedantic": pedantic}
                        yield api("CONSUMER.CREATE.N.c", body)
                        yield api("CONSUMER.DELETE.N.c")
        yield api("STREAM.DELETE.N")
    streams: tuple[dict[str, Any], ...] = (
        *({name: -2} for name in ("max_msgs", "max_bytes", "max_msg_size", "max_consumers")),
        {"max_msgs_per_subject": -2},
        {"max_age": SECOND},
        {"max_age": SECOND, "duplicate_window": 2 * SECOND},
        {"republish": {"src": "", "dest": "x"}},
        {"consumer_limits": {"max_ack_pending": -1}},
        {"consumer_limits": {"inactive_threshold": -1}},
        {"placement": {}},
        {"persist_mode": ""},
        {"allow_rollup_hdrs": True, "deny_purge": True},
    )
    for config in streams:
        for pedantic in (False, True):
            yield create("N", subjects=["n"], pedantic=pedantic, **config)
            yield api("STREAM.UPDATE.N", {"name": "N", "pedantic": pedantic, **config})
            yield api("STREAM.DELETE.N")


def client_requests() -> Iterator[Entry]:
    """The distinct bodies that nats.go, async-nats, nats.js, nats.py and jnats sent in a run of all
    that they can do, in their order; ids and times are replaced, and `ack_wait` is so long that
    nothing is delivered again because the machine is busy."""
    sent = json.loads(CLIENT_REQUESTS.read_text())
    for client in dict.fromkeys(client for client, _, _ in sent):
        for name, subjects in (
            ("S", ["s.>"]), ("KV_B", ["$KV.B.>"]), ("OBJ_O", ["$O.O.C.>", "$O.O.M.>"]),
        ):  # fmt: skip
            yield api(f"STREAM.DELETE.{name}")
            yield create(name, subjects=subjects, allow_direct=True)
            yield pub(subjects[0].replace(">", "a"))
            yield api(f"STREAM.DELETE.{name}")
        for sender, subject, body in sent:
            if sender != client:
                continue
            kind = "direct" if subject.startswith("DIRECT.") else "api"
            if subject.startswith("CONSUMER.MSG.NEXT."):
                kind = "pull"
            yield (kind, subject, body, None)
            if subject == "STREAM.CREATE.S":
                for i in range(400):
                    yield pub(f"s.{i % 7}" if i < 30 else "s.async")


PARTS = (
    client_requests,
    pedantic,
    nulls_in_configurations,
    nulls_in_requests,
    enumerations,
    times,
    required_levels,
    names_and_order_of_checks,
)
