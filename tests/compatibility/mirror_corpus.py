"""Which mirrors and sources can be, which can not, and what may become of them.

Each function is run on servers of its own, in order. What mirrors and sources bring is compared by
`test_mirror_story`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, update

U_TO_Z = {"src": "u.>", "dest": "z.>"}
DURABLE = {"name": "x", "deliver_subject": "d"}


def _tried(**options: Any) -> Iterator[Entry]:
    yield create("M", **options)
    yield api("STREAM.DELETE.M")


def mirror_configurations() -> Iterator[Entry]:
    """Mirrors beside other options, with filters, transforms, starts and prefixes."""
    yield create("U", subjects=["u.>"], allow_direct=True, max_msg_size=100)
    yield create("V", subjects=["v.>"], max_msg_size=100)
    for beside in _BESIDE_MIRROR:
        yield from _tried(mirror={"name": "U"}, **beside)
    yield from _tried(mirror={"name": "V"}, mirror_direct=True)
    yield from _tried(mirror={"name": "V"}, mirror_direct=True, pedantic=True)
    yield from _tried(mirror={"name": "none"}, mirror_direct=True)
    for fields in _MIRRORS:
        yield from _tried(mirror={"name": "U", **fields})
    for mirror in ({"name": ""}, {"name": "a.b"}, {}, {"name": "a/b"}, None, {"name": "x y"}):
        yield from _tried(mirror=mirror)
    yield from _tried(mirror={"NAME": "U", "Filter_Subject": "u.a"})


_BESIDE_MIRROR: list[dict[str, Any]] = [
    {}, {"mirror_direct": False, "pedantic": True}, {"mirror_direct": True, "pedantic": True},
    {"max_msg_size": 50}, {"max_msg_size": 100}, {"subjects": ["a"]}, {"subjects": []},
    {"sources": [{"name": "U"}]}, {"sources": []}, {"first_seq": 5}, {"allow_msg_counter": True},
    {"allow_atomic": True}, {"allow_batched": True}, {"allow_msg_schedules": True},
    {"subject_delete_marker_ttl": 10 * SECOND}, {"allow_msg_ttl": True}, {"max_age": SECOND},
    {"subject_transform": U_TO_Z}, {"retention": "workqueue"}, {"retention": "interest"},
    {"discard": "new"}, {"duplicate_window": SECOND}, {"allow_direct": True},
    {"republish": {"src": ">", "dest": "r.>"}}, {"storage": "memory"}, {"deny_delete": True},
]  # fmt: skip

_MIRRORS: list[dict[str, Any]] = [
    {"filter_subject": "q.>"}, {"filter_subject": "bad..x"}, {"filter_subject": ""},
    {"filter_subject": "u.a", "subject_transforms": [U_TO_Z]}, {"subject_transforms": [U_TO_Z]},
    {"subject_transforms": [U_TO_Z, {"src": "u.a", "dest": "q"}]}, {"subject_transforms": []},
    {"subject_transforms": [{"src": "u..", "dest": "q"}]},
    {"subject_transforms": [{"src": "u.*", "dest": "q.{{bad(1)}}"}]},
    {"subject_transforms": [{"src": "", "dest": "q.>"}]},
    {"subject_transforms": [{"src": "u.*", "dest": ""}]},
    {"subject_transforms": [{"src": "u.*.a", "dest": "p"}, {"src": "u.b.*", "dest": "q"}]},
    {"consumer": {"name": ""}}, {"consumer": {"name": "x"}}, {"consumer": None},
    {"consumer": {"name": "x", "deliver_subject": "d.*"}},
    {"consumer": {"name": "x.y", "deliver_subject": "d"}},
    {"consumer": DURABLE}, {"consumer": DURABLE, "opt_start_seq": 1},
    {"consumer": DURABLE, "filter_subject": "u.a"},
    {"consumer": DURABLE, "subject_transforms": [U_TO_Z]},
    {"consumer": DURABLE, "opt_start_time": "2024-01-01T00:00:00Z"},
    {"external": {"api": "a.*", "deliver": "d"}}, {"external": {"api": "a", "deliver": "d.*"}},
    {"external": {"api": "a", "deliver": "u.x"}}, {"external": {"api": "$JS.API", "deliver": ""}},
    {"external": {"api": "$JS.API.x", "deliver": "d"}},
    {"external": {"api": "a..b", "deliver": "d"}}, {"external": {"api": "a.>", "deliver": "d"}},
    {"external": {"api": "x"}}, {"external": {}}, {"external": None}, {"external": {"bogus": 1}},
    {"external": {"api": "x", "deliver": "d"}, "name": "a.b"}, {"consumer": {"bogus": 1}},
    {"opt_start_time": "bad"}, {"opt_start_time": "2024-01-01T00:00:00.500+02:00"},
    {"opt_start_time": None}, {"opt_start_seq": 7}, {"opt_start_seq": None}, {"bogus": 1},
    {"opt_start_seq": 7, "opt_start_time": "2024-01-01T00:00:00Z"},
]  # fmt: skip


def source_configurations() -> Iterator[Entry]:
    """The same of sources, one and several."""
    yield create("U", subjects=["u.>"], allow_direct=True, max_msg_size=100)
    for sources in _SOURCES:
        yield from _tried(sources=sources)
    for beside in (
        {"subjects": ["m.>"]}, {"max_msg_size": 50}, {"max_msg_size": 100}, {"first_seq": 7},
        {"allow_msg_schedules": True}, {"allow_msg_counter": True}, {"mirror_direct": True},
        {"duplicate_window": SECOND}, {"retention": "workqueue"}, {"allow_atomic": True},
        {"subjects": ["m.>", "m.a"]}, {"subject_delete_marker_ttl": SECOND},
    ):  # fmt: skip
        yield from _tried(sources=[{"name": "U"}], **beside)
    yield from _tried(
        sources=[{"name": "U", "external": {"api": "a", "deliver": "m.x"}}], subjects=["m.>"]
    )
    yield from _tried(
        sources=[{"name": "U"}, {"name": "V", "external": {"api": "a", "deliver": "u.x"}}]
    )


_SOURCES: list[list[dict[str, Any]] | None] = [
    None, [], [{"name": "a.b"}], [{}], [{"name": "U"}, {"name": "U"}], [{"name": "U"}],
    [{"name": "U"}, {"name": "U", "filter_subject": ">"}],
    [{"name": "U", "filter_subject": "u.a"}, {"name": "U", "filter_subject": "u.a"}],
    [{"name": "U", "filter_subject": "u.a"}, {"name": "U", "filter_subject": "u.b"}],
    [{"name": "U", "filter_subject": "u.a", "subject_transforms": [U_TO_Z]}],
    [{"name": "U", "subject_transforms": [{"src": "u..", "dest": "q"}]}],
    [{"name": "U", "subject_transforms": [{"src": "u.*", "dest": "q.{{bad(1)}}"}]}],
    [{"name": "U", "subject_transforms": [U_TO_Z, {"src": "u.a", "dest": "q"}]}],
    [{"name": "U", "subject_transforms": [{"src": "u.*.a", "dest": "p"}, U_TO_Z]}],
    [{"name": "U", "subject_transforms": [
        {"src": "u.*.a", "dest": "p"}, {"src": "u.b.*", "dest": "q"},
    ]}],
    [{"name": "U", "filter_subject": "bad..x"}],
    [{"name": "U", "subject_transforms": [{"src": "u.*", "dest": ""}]}],
    [{"name": "U", "consumer": {"name": "x"}}], [{"name": "U", "consumer": DURABLE}],
    [{"name": "U", "consumer": DURABLE}, {"name": "U", "filter_subject": "u.a"}],
    [{"name": "U", "consumer": DURABLE}, {"name": "U", "consumer": DURABLE | {"name": "y"}}],
    [{"name": "U", "consumer": DURABLE},
     {"name": "U", "consumer": DURABLE | {"deliver_subject": "e"}}],
    [{"name": "U", "consumer": DURABLE, "opt_start_seq": 4}],
    [{"name": "a.b", "external": {"api": "x", "deliver": "d"}}],
    [{"name": "U", "external": {"api": "x", "deliver": "d"}}, {"name": "U"}],
    [{"name": "U", "external": {"api": "x", "deliver": "d"}},
     {"name": "U", "external": {"api": "x", "deliver": "e"}}],
    [{"name": "U", "bogus": 1}], [{"NAME": "U", "Opt_Start_Seq": 3}],
    [{"name": "U", "opt_start_time": "bad"}],
    [{"name": "U", "opt_start_time": "2024-01-01T00:00:00.500+02:00"}],
]  # fmt: skip


def mirror_changes() -> Iterator[Entry]:
    """A mirror can become an ordinary stream, and nothing else."""
    yield create("U", subjects=["u.>"])
    yield create("V", subjects=["v.>"])
    yield create("M", mirror={"name": "U"})
    yield create("M", mirror={"name": "U"})
    yield create("M", mirror={"name": "V"})
    for fields in (
        {"mirror": {"name": "U", "filter_subject": "u.c"}}, {"mirror": {"name": "X"}},
        {"mirror": {"name": "V"}}, {"mirror": {"name": "U"}},
        {"mirror": {"name": "U"}, "max_msgs": 5},
        {"mirror": {"name": "U"}, "subjects": ["m.>"]}, {"subjects": ["u.a"]},
        {"subjects": ["m.>"], "sources": [{"name": "V"}]}, {"subjects": ["m.>"]},
        {"subjects": ["m.>"], "mirror": {"name": "U"}}, {"mirror": {"name": "U"}},
        {"mirror": {"name": "V"}}, {"subjects": ["m.>"], "sources": [{"name": "U"}, {"name": "V"}]},
        {"subjects": ["m.>"], "sources": [{"name": "V", "filter_subject": "v.a"}]},
        {"sources": [{"name": "V"}]}, {},
    ):  # fmt: skip
        yield update("M", **fields)


def loops() -> Iterator[Entry]:
    """Streams that would take over from themselves."""
    yield create("A", subjects=["a.>"])
    yield create("S", subjects=["s.>"], sources=[{"name": "A"}])
    yield update("A", subjects=["a.>"], sources=[{"name": "S"}])
    yield update("A", subjects=["a.>"], sources=[{"name": "S", "filter_subject": "a.x"}])
    yield update("A", subjects=["a.>"], sources=[{"name": "S", "filter_subject": "s.x"}])
    yield create("L1", sources=[{"name": "L2"}])
    yield create("L2", sources=[{"name": "L1"}])
    yield create("L2", mirror={"name": "L1"})
    yield create("L2", mirror={"name": "S"})
    yield create("L3", mirror={"name": "L3"})
    yield create("L3", sources=[{"name": "L3"}])
    yield create("L3", sources=[{"name": "L3", "filter_subject": "q"}], subjects=["z"])
    yield create("L4", mirror={"name": "L5"})
    yield create("L5", mirror={"name": "L6"})
    yield create("L6", mirror={"name": "L4"})
    yield create("L6", mirror={"name": "L4", "external": {"api": "x", "deliver": "y"}})


def flow_acknowledgements() -> Iterator[Entry]:
    """Consumers whose messages are acknowledged by flow control, and direct ones."""
    yield create("S", subjects=["s.>"])
    yield create("W", subjects=["w.>"], retention="workqueue")
    push = {"deliver_subject": "d.x", "flow_control": True, "idle_heartbeat": SECOND}
    by_flow = {"ack_policy": "flow_control", **push}
    for fields in (
        by_flow, {"ack_policy": "flow_control"}, by_flow | {"flow_control": False},
        by_flow | {"idle_heartbeat": 0}, by_flow | {"max_ack_pending": -1},
        by_flow | {"max_ack_pending": 10}, by_flow | {"ack_wait": SECOND},
        by_flow | {"max_deliver": 3}, by_flow | {"backoff": [SECOND]},
        {"ack_policy": "flow_control", "deliver_subject": "d.x"}, push | {"sourcing": True},
        by_flow | {"idle_heartbeat": 5 * SECOND},
    ):  # fmt: skip
        for stream in ("S", "W"):
            yield consumer(stream, "C", durable_name="C", **fields)
            yield api(f"CONSUMER.INFO.{stream}.C")
            yield api(f"CONSUMER.DELETE.{stream}.C")
    yield consumer("S", "C", direct=True)
    yield consumer("S", "C", direct=True, durable_name="C", **push)
    yield api("STREAM.INFO.S")


PARTS: tuple[Callable[[], Iterator[Entry]], ...] = (
    mirror_configurations,
    source_configurations,
    mirror_changes,
    loops,
    flow_acknowledgements,
)
