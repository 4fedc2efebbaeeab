"""Counters: every header, every refusal, and what is stored.

Each function is run on servers of its own, in order.
"""

from collections.abc import Iterator

from tests.compatibility.batch_corpus import batched, look
from tests.compatibility.corpus import SECOND, Entry, api, create, pub, update


def count(subject: str, increment: str, body: bytes = b"", **headers: str) -> Entry:
    """An increment; header names are written with _ for -."""
    return pub(subject, body, Nats_Incr=increment, **headers)


def counter_configurations() -> Iterator[Entry]:
    """Which streams may count."""
    for options in (
        {}, {"storage": "memory"}, {"discard": "new"}, {"discard": "new", "max_msgs": 5},
        {"allow_msg_ttl": True}, {"subject_delete_marker_ttl": SECOND},
        {"allow_msg_schedules": True}, {"retention": "interest"}, {"retention": "workqueue"},
        {"retention": "workqueue", "discard": "new", "allow_msg_ttl": True},
        {"retention": "workqueue", "allow_msg_schedules": True},
        {"mirror": {"name": "M"}, "subjects": []}, {"max_age": 3600 * SECOND},
        {"mirror": {"name": "M"}, "subjects": [], "allow_atomic": True},
        {"deny_purge": True, "allow_rollup_hdrs": True, "discard": "new"},
        {"discard_new_per_subject": True}, {"persist_mode": "async"}, {"allow_atomic": True},
        {"max_msgs_per_subject": 1}, {"no_ack": True}, {"pedantic": True},
    ):  # fmt: skip
        yield create("C", **{"subjects": ["c.>"], "allow_msg_counter": True, **options})
        yield api("STREAM.DELETE.C")
    yield create("U", subjects=["u.>"])
    yield count("u.a", "1")
    yield update("U", subjects=["u.>"], allow_msg_counter=True)
    yield create("V", subjects=["v.>"], allow_msg_counter=True)
    yield update("V", subjects=["v.>"])
    yield update("V", subjects=["v.>"], allow_msg_counter=True, description="x")
    yield update("V", subjects=["v.>"], allow_msg_counter=True, allow_msg_ttl=True)


def counting() -> Iterator[Entry]:
    """Every way to write an increment, and what comes of it."""
    yield create("C", subjects=["c.>"], allow_msg_counter=True)
    for value in (
        "1", "+5", "-2", "0", "-0", "007", "x", "", " ", "1.5", "1e3", "0x10", "1_000", "--1", "+",
        "9" * 60, "-" + "9" * 70, "1 ", " 1", "\N{SUPERSCRIPT TWO}", "1" * 3000, "-" + "1" * 3000,
    ):  # fmt: skip
        yield count("c.a", value)
    yield count("c.b", "10")
    yield count("c.a", "1", b"x")
    yield pub("c.a", b"x")
    yield pub("c.a", b"")
    yield pub("c.a", b"", A="b")
    yield pub("c.a", b"", Nats_Msg_Id="i")
    yield pub("c.a", b"", Nats_Expected_Stream="C")
    yield pub("c.a", b"", Nats_Expected_Stream="D")
    yield count("c.a", "1", A="b")
    yield count("c.a", "1", Nats_Msg_Id="i")
    yield count("c.a", "1", Nats_Msg_Id="i")
    for headers in (
        {"Nats_Rollup": "sub"}, {"Nats_Rollup": "x"}, {"Nats_Expected_Stream": "C"},
        {"Nats_Expected_Stream": "D"}, {"Nats_Expected_Last_Sequence": "1"},
        {"Nats_Expected_Last_Subject_Sequence": "1"}, {"Nats_Expected_Last_Msg_Id": "i"},
        {"Nats_Expected_Last_Subject_Sequence_Subject": "c.b"}, {"Nats_TTL": "1h"},
        {"Nats_Expected_Stream": "D", "Nats_Rollup": "x"}, {"Nats_Counter_Sources": "{}"},
        {"Nats_Schedule": "@every 1h", "Nats_Schedule_Target": "c.b"}, {"Nats_Scheduler": "x"},
        {"Nats_Stream_Source": "x"},
    ):  # fmt: skip
        yield count("c.a", "1", **headers)
        yield count("c.a", "x", **headers)
        yield count("c.a", "1", b"x", **headers)
    yield api("STREAM.MSG.DELETE.C", {"seq": 3})
    yield count("c.a", "1")
    yield api("STREAM.PURGE.C", {"filter": "c.a"})
    yield count("c.a", "1")
    yield from look("C", 30)


def counters_under_limits() -> Iterator[Entry]:
    """A total goes on from the last message that is left."""
    for name, options in (
        ("ONE", {"max_msgs_per_subject": 1}), ("FEW", {"max_msgs": 2}),
        ("SMALL", {"max_msg_size": 66}), ("TINY", {"max_msg_size": 60}),
        ("MAP", {"subject_transform": {"src": "MAP.*", "dest": "MAP.x"}}),
    ):  # fmt: skip
        yield create(name, subjects=[f"{name}.>"], allow_msg_counter=True, **options)
        for token in "abacab" if name != "TINY" else "a":
            yield count(f"{name}.{token}", "1" * 15)
        if name != "TINY":
            yield from look(name, 6)


def counters_in_batches() -> Iterator[Entry]:
    """Increments within an atomic batch."""
    yield create("C", subjects=["c.>"], allow_msg_counter=True, allow_atomic=True)
    stories: list[list[tuple[str, str]]] = [
        [("c.a", "1"), ("c.a", "2"), ("c.b", "3")], [("c.a", "5")], [("c.a", "5"), ("c.a", "x")],
        [("c.a", "5"), ("c.b", "")], [("c.b", "-1"), ("c.a", "1"), ("c.b", "-1")],
    ]  # fmt: skip
    for n, story in enumerate(stories):
        for number, (subject, increment) in enumerate(story, 1):
            commit = "1" if number == len(story) else ""
            what, where, _, headers = batched(subject, f"b{n}", number, commit, Nats_Incr=increment)
            yield what, where, b"", headers
    what, where, _, headers = batched("c.a", "eob", 1, Nats_Incr="1")
    yield what, where, b"", headers
    yield batched("c.a", "eob", 2, "eob")
    yield from look("C", 12)


PARTS = (counter_configurations, counting, counters_under_limits, counters_in_batches)
