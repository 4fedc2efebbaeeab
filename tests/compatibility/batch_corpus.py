"""Atomic batches: every header, every refusal, and what is stored.

Each function is run on servers of its own, in order.
"""

from collections.abc import Iterator
from typing import Any

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, pub, update

HOUR = 3600 * SECOND


def batched(subject: str, batch: str, number: Any, commit: str = "", **headers: str) -> Entry:
    """A message of a batch; header names are written with _ for -."""
    fields = {"Nats_Batch_Id": batch, "Nats_Batch_Sequence": str(number), **headers}
    if commit:
        fields["Nats_Batch_Commit"] = commit
    return pub(subject, **fields)


def look(name: str, last: int) -> Iterator[Entry]:
    """What the stream holds."""
    yield api(f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    for seq in range(1, last + 1):
        yield api(f"STREAM.MSG.GET.{name}", {"seq": seq})


def batch_configurations() -> Iterator[Entry]:
    """Which streams may have batches."""
    for options in (
        {}, {"storage": "memory"}, {"persist_mode": "async"}, {"no_ack": True},
        {"retention": "interest"}, {"discard": "new", "max_msgs": 3}, {"allow_msg_ttl": True},
        {"sealed": True}, {"pedantic": True}, {"mirror": {"name": "M"}, "subjects": []},
        {"persist_mode": "async", "storage": "memory"},
    ):  # fmt: skip
        yield create("A", **{"subjects": ["a.>"], "allow_atomic": True, **options})
        yield api("STREAM.INFO.A")
        yield api("STREAM.DELETE.A")
    yield create("U", subjects=["u.>"])
    yield batched("u.a", "b", 1)
    yield update("U", subjects=["u.>"], allow_atomic=True)
    yield batched("u.a", "b", 1)
    yield update("U", subjects=["u.>"], allow_atomic=True)
    yield batched("u.a", "b", 2)
    yield update("U", subjects=["u.>"])
    yield update("U", subjects=["u.>"], allow_atomic=True)
    yield batched("u.a", "b", 3, "1")
    yield update("U", subjects=["u.>"], allow_atomic="x")
    yield pub("u.a")
    yield from look("U", 0)


def batch_commits() -> Iterator[Entry]:
    """How a batch begins, goes on and ends."""
    yield create("A", subjects=["a.>"], allow_atomic=True)
    yield batched("a.1", "b", 1)
    yield batched("a.2", "b", 2)
    yield batched("a.3", "b", 3, "1")
    yield batched("a.1", "one", 1, "1")
    yield batched("a.1", "eob", 1)
    yield batched("a.2", "eob", 2)
    yield batched("a.3", "eob", 3, "eob")
    yield batched("a.1", "only-eob", 1, "eob")
    yield batched("a.1", "unknown", 2)
    yield batched("a.1", "unknown", 2, "1")
    for number in ("0", "-1", "x", "", "1.0", "+1", "01", " 1", "18446744073709551616"):
        yield batched("a.1", "number" + number, number)
        yield batched("a.1", "number" + number, 2, "1")
    yield pub("a.1", Nats_Batch_Id="nameless")
    yield pub("a.1", Nats_Batch_Sequence="1")
    yield pub("a.1", Nats_Batch_Commit="1")
    yield pub("a.1", Nats_Batch_Id="", Nats_Batch_Sequence="1")
    yield batched("a.1", "x" * 64, 1, "1")
    yield batched("a.1", "x" * 65, 1, "1")
    yield batched("a.1", "a b.c*>", 1, "1")
    yield batched("a.1", 'q"\\', 1, "1")
    for commit in ("0", "2", "true", "EOB", "eob ", "11"):
        yield batched("a.1", "commit", 1, commit)
        yield batched("a.1", "commit", 1)
        yield batched("a.1", "commit", 2, commit)
        yield batched("a.1", "commit", 2)
    yield batched("a.1", "gap", 1)
    yield batched("a.1", "gap", 3)
    yield batched("a.1", "gap", 2)
    yield batched("a.1", "again", 1)
    yield batched("a.1", "again", 1)
    yield batched("a.1", "again", 1, "1")
    yield batched("a.1", "p", 1)
    yield batched("a.1", "q", 1)
    yield batched("a.2", "p", 2)
    yield batched("a.2", "q", 2, "1")
    yield pub("a.between")
    yield batched("a.3", "p", 3, "1")
    for level in ("0", "1", "9", "x"):
        yield batched("a.1", "level", 1, Nats_Required_Api_Level=level)
        yield batched("a.1", "level", 2, "1", Nats_Required_Api_Level=level)
    yield from look("A", 30)


def batch_expectations() -> Iterator[Entry]:
    """Expectations, ids and rollups within a batch."""
    yield create("A", subjects=["a.>"], allow_atomic=True, allow_rollup_hdrs=True)
    yield pub("a.1", Nats_Msg_Id="known")
    yield pub("a.2")
    last, of = "Nats_Expected_Last_Sequence", "Nats_Expected_Last_Subject_Sequence"
    other = of + "_Subject"
    stories: list[list[tuple[str, dict[str, str]]]] = [
        [("a.1", {last: "2"}), ("a.2", {})],
        [("a.1", {last: "9"}), ("a.2", {})],
        [("a.1", {}), ("a.2", {last: "4"})],
        [("a.1", {}), ("a.2", {last: "5"})],
        [("a.1", {last: "x"}), ("a.2", {last: "5"})],
        [("a.1", {of: "3"}), ("a.2", {of: "4"})],
        [("a.1", {of: "9"})],
        [("a.1", {}), ("a.2", {of: "9"})],
        [("a.1", {}), ("a.1", {of: "5"})],
        [("a.1", {}), ("a.1", {of: "7"})],
        [("a.3", {of: "0"}), ("a.3", {of: "0"})],
        [("a.3", {of: "0"}), ("a.3", {})],
        [("a.4", {of: "0", other: "a.9"}), ("a.5", {of: "0", other: "a.9"})],
        [("a.4", {of: "0", other: "a.9"}), ("a.9", {of: "0"})],
        [("a.9", {}), ("a.4", {of: "0", other: "a.9"})],
        [("a.4", {of: "0", other: "a.7"}), ("a.5", {of: "1", other: "a.7"})],
        [("a.4", {other: "a.7"})],
        [("a.4", {of: "0", other: "a.x.*"}), ("a.x.1", {})],
        [("a.x.2", {}), ("a.4", {of: "0", other: "a.x.*"})],
        [("a.1", {"Nats_Msg_Id": "known"})],
        [("a.1", {"Nats_Msg_Id": "i"}), ("a.1", {"Nats_Msg_Id": "i"})],
        [("a.1", {"Nats_Msg_Id": "i"}), ("a.1", {"Nats_Msg_Id": "j"})],
        [("a.1", {"Nats_Msg_Id": "i"}), ("a.1", {"Nats_Msg_Id": "k"})],
        [("a.1", {"Nats_Msg_Id": "l"}), ("a.1", {"Nats_Msg_Id": "known"})],
        [("a.1", {"Nats_Expected_Last_Msg_Id": "j"})],
        [("a.1", {}), ("a.1", {"Nats_Expected_Last_Msg_Id": "j"})],
        [("a.1", {"Nats_Expected_Stream": "A"}), ("a.1", {"Nats_Expected_Stream": "B"})],
        [("a.1", {"Nats_Rollup": "sub"}), ("a.2", {})],
        [("a.1", {}), ("a.1", {"Nats_Rollup": "sub"})],
        [("a.1", {}), ("a.2", {"Nats_Rollup": "sub"})],
        [("a.1", {}), ("a.2", {"Nats_Rollup": "all"})],
        [("a.1", {"Nats_Rollup": "x"})],
        [("a.1", {"Nats_TTL": "1h"})],
        [("a.1", {}), ("a.2", {"Nats_TTL": "x"})],
        [("a.1", {"Nats_Incr": "1"})],
        [("a.1", {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "a.2"})],
        [("a.1", {"Nats_Stream_Source": "x"})],
        [("a.1", {"Nats_Rollup": "all"}), ("a.2", {})],
    ]
    for n, story in enumerate(stories):
        for number, (subject, headers) in enumerate(story, 1):
            commit = "1" if number == len(story) else ""
            yield batched(subject, f"s{n}", number, commit, **headers)
        yield from look("A", 0)
    yield from look("A", 60)


def batch_limits() -> Iterator[Entry]:
    """What limits make of a batch, and of a part of one."""
    for name, options in (
        ("OLD", {"max_msgs": 3}), ("NEW", {"max_msgs": 3, "discard": "new"}),
        ("BYTES", {"max_bytes": 400}), ("FULL", {"max_bytes": 400, "discard": "new"}),
        ("EACH", {"max_msgs_per_subject": 1}),
        ("EACHNEW", {"max_msgs_per_subject": 1, "discard": "new"}),
        ("DNP", {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}),
        ("SIZE", {"max_msg_size": 130}), ("INTEREST", {"retention": "interest"}),
        ("WQ", {"retention": "workqueue"}), ("TTL", {"allow_msg_ttl": True}),
        ("MAP", {"subject_transform": {"src": "MAP.*", "dest": "MAP.x.{{wildcard(1)}}"}}),
    ):  # fmt: skip
        yield create(name, subjects=[f"{name}.>"], allow_atomic=True, **options)
        if name == "INTEREST":
            yield consumer(name, "c", ack_policy="explicit", filter_subject=f"{name}.2")
        for batch, subjects in (("a", "1234"), ("b", "111"), ("c", "56"), ("d", "22"), ("e", "2")):
            for number, token in enumerate(subjects, 1):
                commit = "1" if number == len(subjects) else ""
                yield batched(f"{name}.{token}", batch, number, commit)
        yield ("pub", f"{name}.1", b"x" * 200, batched("", "big", 1)[3])
        yield batched(f"{name}.1", "big", 2, "1")
        yield batched(f"{name}.7", "ttl", 1, Nats_TTL="1h")
        yield batched(f"{name}.8", "ttl", 2, "1", Nats_TTL="never")
        yield pub(f"{name}.9")
        yield from look(name, 16)
    yield create("SEALED", subjects=["sealed"], allow_atomic=True)
    yield batched("sealed", "b", 1)
    yield update("SEALED", subjects=["sealed"], allow_atomic=True, sealed=True)
    yield batched("sealed", "b", 2, "1")
    yield batched("sealed", "c", 1, "1")


def batch_sizes() -> Iterator[Entry]:
    """Batches that are too large, and too many of them."""
    yield create("A", subjects=["a.>"], allow_atomic=True)
    for number in range(1, 1002):
        yield batched("a.1", "large", number)
    yield batched("a.1", "large", 1002, "1")
    for number in range(1, 1001):
        yield batched("a.1", "fits", number)
    yield batched("a.1", "fits", 1001, "eob")
    yield batched("a.1", "jump", 1)
    yield batched("a.1", "jump", 1001)
    yield batched("a.1", "jump", 1001)
    yield batched("a.1", "jump", 5000)
    for n in range(52):
        yield batched("a.1", f"open{n}", 1)
    yield batched("a.1", "open0", 2, "1")
    yield batched("a.1", "open50", 1)
    yield batched("a.1", "open51", 1, "1")
    yield from look("A", 0)


PARTS = (batch_configurations, batch_commits, batch_expectations, batch_limits, batch_sizes)
