"""What API level 1 brought: TTLs of messages, delete markers, priority groups.

Continues `story_corpus`. Each function is run on servers of its own, in order. Nothing here waits
for anything to expire; `test_expiry_story` does.
"""

from collections.abc import Iterator
from typing import Any

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, pub, update

HOUR = 3600 * SECOND


def ttl_configurations() -> Iterator[Entry]:
    """Which streams may have TTLs and markers, and what may change."""
    for options in _OPTIONS:
        yield api("STREAM.CREATE.P", {"name": "P", "subjects": ["p.>"], **options})
        yield api("STREAM.INFO.P")
        yield api("STREAM.DELETE.P")
    yield create("U", subjects=["u.>"])
    for options in (
        {}, {"allow_msg_ttl": True}, {}, {"allow_msg_ttl": False}, {"allow_msg_ttl": None},
        {"subject_delete_marker_ttl": HOUR}, {"subject_delete_marker_ttl": 2 * HOUR + 5},
        {"allow_msg_ttl": True}, {"subject_delete_marker_ttl": HOUR, "deny_purge": True},
        {"allow_msg_ttl": True, "deny_purge": True},
        {"subject_delete_marker_ttl": HOUR, "deny_purge": True},
        {"subject_delete_marker_ttl": HOUR},
    ):  # fmt: skip
        yield update("U", subjects=["u.>"], **options)
        yield api("STREAM.INFO.U")
    yield create("SEALED", subjects=["sealed"], subject_delete_marker_ttl=HOUR)
    for options in (
        {"sealed": True, "subject_delete_marker_ttl": HOUR},
        {"sealed": True, "subject_delete_marker_ttl": HOUR},
        {"sealed": True, "allow_msg_ttl": True, "deny_purge": True, "deny_delete": True},
    ):  # fmt: skip
        yield update("SEALED", subjects=["sealed"], **options)
    yield pub("sealed", Nats_TTL="1h")


_OPTIONS: list[dict[str, Any]] = [
    {"allow_msg_ttl": True}, {"allow_msg_ttl": True, "pedantic": True}, {"allow_msg_ttl": 1},
    {"allow_msg_ttl": True, "persist_mode": "async"}, {"allow_msg_ttl": True, "no_ack": True},
    {"subject_delete_marker_ttl": SECOND}, {"subject_delete_marker_ttl": SECOND - 1},
    {"subject_delete_marker_ttl": 1}, {"subject_delete_marker_ttl": -1},
    {"subject_delete_marker_ttl": 1500 * SECOND // 1000}, {"subject_delete_marker_ttl": "1s"},
    {"subject_delete_marker_ttl": SECOND, "pedantic": True},
    {"subject_delete_marker_ttl": SECOND, "pedantic": True, "allow_msg_ttl": True},
    {"subject_delete_marker_ttl": SECOND, "pedantic": True, "allow_rollup_hdrs": True},
    {"subject_delete_marker_ttl": SECOND, "pedantic": True, "allow_msg_ttl": True,
     "allow_rollup_hdrs": True},
    {"subject_delete_marker_ttl": SECOND, "deny_purge": True},
    {"subject_delete_marker_ttl": SECOND, "deny_purge": True, "allow_rollup_hdrs": True},
    {"subject_delete_marker_ttl": SECOND, "retention": "interest"},
    {"subject_delete_marker_ttl": SECOND, "retention": "workqueue"},
    {"subject_delete_marker_ttl": SECOND, "max_age": SECOND},
    {"subject_delete_marker_ttl": SECOND, "max_age": -1},
    {"subject_delete_marker_ttl": -1, "discard_new_per_subject": True},
    {"subject_delete_marker_ttl": -1, "subjects": ["P..x"]},
    {"subject_delete_marker_ttl": SECOND, "storage": "memory", "discard": "new"},
]  # fmt: skip


def ttl_values() -> Iterator[Entry]:
    """Every way to write a TTL, in streams with and without, and what is stored."""
    values = (
        "1h", "3600", "never", "NEVER", "nEvEr", "never ", "0", "00", "007200", "-1", "+7200", "1s",
        "999ms", "1.5h", ".5h", "1h1m1s1ms1us1ns", "7200.5", "0x10", "1e4", "1d", "1y", "-1s",
        "x", " ", "", "9999999999", "9223372036854775807", "18446744073709551615",
        "2562047h", "2562048h", "1H", "3600s ", "\N{SUPERSCRIPT TWO}",
    )  # fmt: skip
    for name, options in (
        ("OFF", {}), ("ON", {"allow_msg_ttl": True}),
        ("MARKS", {"subject_delete_marker_ttl": 2 * HOUR}),
        ("ONE", {"subject_delete_marker_ttl": 2 * HOUR, "max_msgs_per_subject": 1}),
        ("WANTED", {"allow_msg_ttl": True, "retention": "interest"}),
    ):  # fmt: skip
        yield create(name, subjects=[f"{name}.>"], **options)
        for value in values:
            yield pub(f"{name}.a", Nats_TTL=value)
        for seq in range(1, 25):
            yield api(f"STREAM.MSG.GET.{name}", {"seq": seq})


def ttl_among_headers() -> Iterator[Entry]:
    """Which of several reasons a publish with a TTL is refused for, and what else it may do."""
    yield create("P", subjects=["p.>"], subject_delete_marker_ttl=HOUR, discard="new", max_msgs=9)
    yield create("O", subjects=["o.>"])
    for subject in ("p.a", "o.a"):
        for headers in (
            {"Nats_TTL": "1h", "Nats_Msg_Id": "a"}, {"Nats_TTL": "1h", "Nats_Msg_Id": "a"},
            {"Nats_TTL": "x", "Nats_Msg_Id": "a"}, {"Nats_TTL": "x", "Nats_Msg_Id": "b"},
            {"Nats_TTL": "1h", "Nats_Expected_Stream": "N"},
            {"Nats_TTL": "x", "Nats_Expected_Stream": "N"},
            {"Nats_TTL": "x", "Nats_Expected_Last_Sequence": "77"},
            {"Nats_TTL": "1h", "Nats_Expected_Last_Sequence": "77"},
            {"Nats_TTL": "x", "Nats_Rollup": "zz"}, {"Nats_TTL": "1h", "Nats_Rollup": "zz"},
            {"Nats_TTL": "1h", "Nats_Rollup": "sub"}, {"Nats_TTL": "1h", "Nats_Rollup": "all"},
            {"Nats_TTL": "1s", "A": "b", "Nats_Msg_Id": "c"}, {"nats_ttl": "1s"},
            {"Nats_TTL": "1s", "KV_Operation": "PURGE", "Nats_Rollup": "sub"},
            {"Nats_Marker_Reason": "MaxAge"}, {"Nats_Incr": "1", "Nats_TTL": "1h"},
        ):  # fmt: skip
            yield pub(subject, **headers)
    for name in "PO":
        for seq in range(1, 12):
            yield api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        yield api(f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})


def group_configurations() -> Iterator[Entry]:
    """Which consumers may have priority groups, and what may change."""
    yield create("P", subjects=["p.>"])
    for options in _GROUPS:
        yield consumer("P", "c", **options)
        yield api("CONSUMER.INFO.P.c")
        yield api("CONSUMER.DELETE.P.c")
    overflow = {"priority_policy": "overflow", "priority_groups": ["A"]}
    pinned = {"priority_policy": "pinned_client", "priority_groups": ["A", "B"]}
    yield consumer("P", "u", ack_policy="explicit")
    for options in (
        overflow, overflow, {**overflow, "priority_groups": ["B"]}, pinned,
        {**pinned, "priority_timeout": SECOND}, {**pinned, "priority_timeout": HOUR},
        {"priority_policy": "prioritized", "priority_groups": ["A"]}, {}, pinned,
        {**pinned, "priority_groups": []}, {**pinned, "priority_policy": "none"},
    ):  # fmt: skip
        yield consumer("P", "u", ack_policy="explicit", **options)
        yield api("CONSUMER.INFO.P.u")
    yield consumer("P", "u", "create", ack_policy="explicit", **pinned)
    yield consumer("P", "u", "create", ack_policy="explicit", **overflow)


_GROUPS: list[dict[str, Any]] = [
    {"priority_policy": policy, **options}
    for policy in ("overflow", "pinned_client", "prioritized")
    for options in (
        {}, {"priority_groups": []}, {"priority_groups": ["A"]}, {"priority_groups": ["A", "A"]},
        {"priority_groups": ["A", "B"]}, {"priority_groups": ["A", ""]},
        {"priority_groups": ["x" * 16]}, {"priority_groups": ["x" * 17]},
        {"priority_groups": ["a/b_c=d-1"]}, {"priority_groups": ["a+"]},
        {"priority_groups": ["a)"]}, {"priority_groups": ["A", "a b"]},
        {"priority_groups": ["A\n"]},
        {"priority_groups": ["A"], "priority_timeout": SECOND},
        {"priority_groups": ["A"], "priority_timeout": -1},
        {"priority_groups": ["A"], "priority_timeout": 1},
        {"priority_groups": ["A"], "ack_policy": "none"},
        {"priority_groups": ["A"], "deliver_subject": "d"}, {"deliver_subject": "d"},
        {"priority_groups": ["A"], "pause_until": "2100-01-01T00:00:00Z"},
    )
] + [
    {"priority_groups": ["A"]}, {"priority_groups": []}, {"priority_timeout": SECOND},
    {"priority_groups": ["A"], "priority_timeout": SECOND}, {"priority_policy": "none"},
    {"priority_groups": ["A"], "deliver_subject": "d"}, {"priority_policy": ""},
    {"priority_policy": "pinned"}, {"priority_policy": "Overflow", "priority_groups": ["A"]},
]  # fmt: skip


def group_requests() -> Iterator[Entry]:
    """What is wrong with a pull request of a consumer with priority groups, and which fault of
    several is told."""
    yield create("P", subjects=["p.>"])
    for name, policy in (
        ("over", "overflow"), ("pin", "pinned_client"), ("rank", "prioritized"), ("none", "none"),
    ):  # fmt: skip
        groups = ["A", "B"] if policy != "none" else []
        yield consumer(
            "P", name, ack_policy="explicit", priority_policy=policy, priority_groups=groups,
            max_batch=5,
        )  # fmt: skip
        for asked in _REQUESTS:
            yield ("pull", f"CONSUMER.MSG.NEXT.P.{name}", {"no_wait": True, **asked}, None)
        yield api(f"CONSUMER.INFO.P.{name}")
        for body in (
            {"group": "A"}, {"group": "B"}, {"group": "C"}, {"group": ""}, {}, {"group": "a b"},
            {"group": "x" * 17}, {"group": None}, {"group": "A", "x": 1}, b"", b"[]", b"{", b"x",
        ):  # fmt: skip
            yield api(f"CONSUMER.UNPIN.P.{name}", body)
        yield api(f"CONSUMER.INFO.P.{name}")
    for body in ({"group": "A"}, {"group": "a b"}, {}):
        yield api("CONSUMER.UNPIN.P.nobody", body)
        yield api("CONSUMER.UNPIN.NONE.c", body)


_REQUESTS: list[dict[str, Any]] = [
    {}, {"group": "A"}, {"group": "B"}, {"group": "X"}, {"group": ""}, {"group": "A", "batch": 6},
    {"batch": 6}, {"group": "X", "batch": 6}, {"id": "x", "batch": 6}, {"priority": 10, "batch": 6},
    {"min_pending": 1, "batch": 6}, {"group": "A", "min_pending": 1},
    {"group": "A", "min_ack_pending": 1}, {"group": "A", "min_pending": -1},
    {"group": "A", "min_ack_pending": -1}, {"group": "A", "id": "x"},
    {"group": "A", "priority": 0}, {"group": "A", "priority": 9}, {"group": "A", "priority": 10},
    {"group": "A", "priority": -1}, {"priority": 10}, {"group": "X", "priority": 10},
    {"id": "x", "priority": 10}, {"min_pending": 1, "priority": 10}, {"min_pending": 1, "id": "x"},
    {"min_pending": 1, "id": "x", "priority": 10, "group": "X"},
    {"expires": SECOND, "idle_heartbeat": SECOND}, {"group": "A", "idle_heartbeat": 1},
    {"expires": SECOND, "idle_heartbeat": SECOND, "priority": 10},
    {"expires": SECOND, "idle_heartbeat": SECOND, "id": "x", "min_pending": 1},
]  # fmt: skip


def dead_letters() -> Iterator[Entry]:
    """A field of Slipstream's own: nothing of it is there where it is not asked for."""
    yield create("D", subjects=["d.>"], retention="workqueue")
    asked = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 2}
    for pedantic in (False, True):
        body = {"stream_name": "D", "config": {"dead_letter": "nowhere", **asked}}
        yield api("CONSUMER.CREATE.D.c", {**body, "pedantic": pedantic})
        yield api("CONSUMER.INFO.D.c")
    yield consumer("D", "c", **{k: v for k, v in asked.items() if k != "durable_name"})
    yield api("CONSUMER.INFO.D.c")
    yield api("CONSUMER.LIST.D")


PARTS = (
    ttl_configurations, ttl_values, ttl_among_headers, group_configurations, group_requests,
    dead_letters,
)  # fmt: skip
