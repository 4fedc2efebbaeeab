"""Several hundred requests and publishes, good and bad, that both servers have to answer alike.

Each entry is (what, subject, body, headers): `api` sends a JetStream API request, `pub` publishes
with a reply subject and takes the acknowledgement. Order matters: later entries see what earlier
ones did.
"""

from collections.abc import Iterator
from typing import Any

Entry = tuple[str, str, Any, dict[str, str] | None]


def api(subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> Entry:
    """A JetStream API request."""
    return ("api", subject, body, headers)


def pub(subject: str, body: bytes = b"x", **headers: str) -> Entry:
    """A publish; header names are written with _ for -."""
    return ("pub", subject, body, {k.replace("_", "-"): v for k, v in headers.items()} or None)


def create(name: str, **config: Any) -> Entry:
    """A stream creation."""
    return api(f"STREAM.CREATE.{name}", {"name": name, **config})


def update(name: str, **config: Any) -> Entry:
    """A stream update."""
    return api(f"STREAM.UPDATE.{name}", {"name": name, **config})


def consumer(stream: str, name: str, action: str = "", **config: Any) -> Entry:
    """A consumer creation by the preferred subject."""
    body: dict[str, Any] = {"stream_name": stream, "config": {"durable_name": name, **config}}
    if action:
        body["action"] = action
    return api(f"CONSUMER.CREATE.{stream}.{name}", body)


def ephemeral(stream: str, name: str, **config: Any) -> Entry:
    """A named consumer without a durable name."""
    body = {"stream_name": stream, "config": {"name": name, **config}}
    return api(f"CONSUMER.CREATE.{stream}.{name}", body)


SECOND = 1_000_000_000


def stream_configurations() -> Iterator[Entry]:
    """Creation and update of streams: defaults, every refusal, idempotence."""
    yield api("INFO")
    yield create("C1", subjects=["c1.>"])
    yield create("C1", subjects=["c1.>"])
    yield create("C1", subjects=["c1.>"], max_msgs=5)
    yield create("C2", subjects=["c1.a"])
    yield create("C3", subjects=["c3.a", "c3.*"])
    yield create("C3", subjects=["c3.a", "c3.a"])
    yield create("C3", subjects=["c3..a"])
    yield create("C3", subjects=[">"])
    yield create("C3", subjects=["$JS.x"])
    yield create("C3", subjects=["$SYS.x"])
    yield create("bad.name")
    yield api("STREAM.CREATE.C3", {"name": "OTHER"})
    yield api("STREAM.CREATE.C3", {"name": "C3", "bogus": 1})
    yield api("STREAM.CREATE.C3", b"{")
    yield api("STREAM.CREATE.C3", {"name": "C3", "retention": "nonsense"})
    yield api("STREAM.CREATE.C3", {"name": "C3", "storage": "nonsense"})
    yield api("STREAM.CREATE.C3", {"name": "C3", "max_msgs": "five"})
    yield create("C3", description="d" * 4097)
    yield create("C3", metadata={"k": "v" * 131_080})
    yield create("C3", num_replicas=3)
    yield create("C3", num_replicas=6)
    yield create("C3", num_replicas=-1)
    yield create("C3", max_age=-1)
    yield create("C3", max_age=1000)
    yield create("C3", max_age=SECOND, duplicate_window=2 * SECOND)
    yield create("C3", duplicate_window=-1)
    yield create("C3", duplicate_window=1000)
    yield create("C3", deny_purge=True, allow_rollup_hdrs=True)
    yield create("C3", discard_new_per_subject=True)
    yield create("C3", discard="new", discard_new_per_subject=True)
    yield create("C3", sealed=True)
    yield create("C3", mirror_direct=True)
    yield create("C3", max_msgs=-5, pedantic=True)
    yield create("C3", placement={"preferred": "x"})
    yield create("C3", republish={"src": ">", "dest": "C3"})
    yield create("C3", republish={"src": "a.*", "dest": "b"})
    yield create("C3", subject_transform={"src": "a..b", "dest": "b"})
    yield create("C3", subject_transform={"src": "a.*", "dest": "b.{{wildcard(2)}}"})
    yield create("C3", subject_transform={"src": "a.*", "dest": "b.{{nonsense(1)}}"})
    yield create("C3", max_msgs=0, max_bytes=0, max_consumers=0, max_msg_size=0)
    yield api("STREAM.INFO.C3")
    yield api("STREAM.DELETE.C3")
    yield api("STREAM.DELETE.C3")
    yield create("C4", subjects=["c4"], discard="NEW", storage="memory", max_msgs=2)
    yield create(
        "C5", subjects=["c5.*"], max_msgs_per_subject=1, metadata={"team": "x"}, first_seq=10
    )
    yield create("C6", retention="interest", max_age=60 * SECOND, no_ack=True)
    yield create("C7", compression="s2", allow_direct=True, description="seven", deny_delete=True)
    yield create("C8", consumer_limits={"inactive_threshold": 5 * SECOND, "max_ack_pending": 10})
    for name in ("C1", "C4", "C5", "C6", "C7", "C8"):
        yield api(f"STREAM.INFO.{name}")
    yield update("C1", subjects=["c1.>"], storage="memory")
    yield update("C1", subjects=["c1.>"], retention="workqueue")
    yield update("C1", subjects=["c1.>", "d1"], max_msgs=100, description="changed")
    yield update("C1", subjects=["c4"])
    yield update("C7", subjects=["C7"], compression="s2", allow_direct=True, deny_delete=False)
    yield update("NONE", subjects=["none"])
    yield api("STREAM.UPDATE.C1", {"name": "C2"})
    yield api("STREAM.NAMES")
    yield api("STREAM.NAMES", {"subject": "c4"})
    yield api("STREAM.NAMES", {"subject": "nothing.here"})
    yield api("STREAM.NAMES", {"offset": 3})
    yield api("STREAM.NAMES", {"offset": 300})
    yield api("STREAM.NAMES", {"limit": 3})
    yield api("STREAM.LIST")
    yield api("STREAM.LIST", {"offset": 2, "subject": ">"})
    yield api("STREAM.INFO.NONE")
    yield api("STREAM.INFO.C1", b"junk")
    yield api("STREAM.INFO.C1", {"bogus": True})
    yield api("STREAM.DELETE.C6", {"x": 1})
    yield api("STREAM.LEADER.STEPDOWN.C1")
    yield api("STREAM.PEER.REMOVE.C1", {"peer": "x"})
    yield update("C8", subjects=["C8"], sealed=True)
    yield api("STREAM.INFO.C8")
    yield pub("C8", b"sealed")
    yield api("STREAM.PURGE.C8")
    yield api("STREAM.MSG.DELETE.C8", {"seq": 1})


def publishing() -> Iterator[Entry]:
    """Publishes with every header, and the limits."""
    yield create("P", subjects=["p.>"], max_msg_size=64)
    yield pub("p.a", b"1")
    yield pub("p.a", b"2", Nats_Msg_Id="m1")
    yield pub("p.a", b"2", Nats_Msg_Id="m1")
    yield pub("p.b", b"3", Nats_Expected_Stream="P")
    yield pub("p.b", b"3", Nats_Expected_Stream="Q")
    yield pub("p.b", b"4", Nats_Expected_Last_Sequence="3")
    yield pub("p.b", b"4", Nats_Expected_Last_Sequence="3")
    yield pub("p.b", b"4", Nats_Expected_Last_Sequence="x")
    yield pub("p.a", b"5", Nats_Expected_Last_Subject_Sequence="2")
    yield pub("p.a", b"5", Nats_Expected_Last_Subject_Sequence="2")
    yield pub("p.new", b"6", Nats_Expected_Last_Subject_Sequence="0")
    yield pub("p.new", b"6", Nats_Expected_Last_Subject_Sequence="0")
    yield pub(
        "p.c",
        b"7",
        Nats_Expected_Last_Subject_Sequence="5",
        Nats_Expected_Last_Subject_Sequence_Subject="p.a",
    )
    yield pub("p.c", b"7", Nats_Expected_Last_Subject_Sequence_Subject="p.a")
    yield pub("p.a", b"8", Nats_Expected_Last_Msg_Id="m1")
    yield pub("p.a", b"8", Nats_Msg_Id="m2")
    yield pub("p.a", b"9", Nats_Expected_Last_Msg_Id="m2")
    yield pub("p.a", b"x" * 65)
    yield pub("p.a", b"x" * 40, Some_Header="y" * 30)
    yield pub("p.a", b"10", Nats_Rollup="sub")
    yield pub("p.a", b"10", Nats_TTL="5s")
    yield pub("p.a", b"10", Nats_Incr="1")
    yield pub("p.a", b"10", Nats_Batch_Id="b", Nats_Batch_Sequence="1")
    yield pub("p.a", b"10", Nats_Schedule="@at 2030-01-01T00:00:00Z", Nats_Schedule_Target="p.z")
    yield pub("p.a", b"10", Nats_Stream_Source="S 1 > > x")
    yield pub("p.a", b"10", Nats_Required_Api_Level="99")
    yield pub("nobody.home", b"x")
    yield api("STREAM.INFO.P", {"subjects_filter": ">"})
    yield api("STREAM.INFO.P", {"subjects_filter": "p.a"})
    yield api("STREAM.INFO.P", {"subjects_filter": "zzz"})
    yield create("R", subjects=["r.>"], allow_rollup_hdrs=True)
    for i in range(4):
        yield pub(f"r.{i % 2}", b"%d" % i)
    yield pub("r.0", b"roll", Nats_Rollup="sub")
    yield api("STREAM.INFO.R", {"deleted_details": True, "subjects_filter": ">"})
    yield pub("r.9", b"all", Nats_Rollup="ALL")
    yield pub("r.9", b"bad", Nats_Rollup="nonsense")
    yield api("STREAM.INFO.R", {"deleted_details": True})
    for discard in ("old", "new"):
        name = f"L{discard}"
        yield create(name, subjects=[f"{name}.*"], max_msgs=3, discard=discard)
        for i in range(5):
            yield pub(f"{name}.{i}", b"x")
        yield api(f"STREAM.INFO.{name}", {"deleted_details": True})
        yield api(f"STREAM.DELETE.{name}")
        yield create(name, subjects=[f"{name}.*"], max_bytes=120, discard=discard)
        for i in range(5):
            yield pub(f"{name}.{i}", b"x" * 10)
        yield pub(f"{name}.big", b"x" * 200)
        yield api(f"STREAM.INFO.{name}")
    yield create(
        "LS", subjects=["ls.*"], max_msgs_per_subject=2, discard="new", discard_new_per_subject=True
    )
    for i in range(3):
        yield pub("ls.a", b"%d" % i)
    yield pub("ls.b", b"x")
    yield api("STREAM.INFO.LS")
    yield create(
        "T", subjects=["t.*"], subject_transform={"src": "t.*", "dest": "tt.{{wildcard(1)}}"}
    )
    yield pub("t.a", b"x")
    yield api("STREAM.MSG.GET.T", {"seq": 1})


def reading_and_removing() -> Iterator[Entry]:
    """Get, delete and purge."""
    yield create("G", subjects=["g.>"], allow_direct=True)
    for i in range(10):
        yield pub(f"g.{i % 3}", b"body %d" % i, X=str(i))
    for body in (
        {"seq": 1},
        {"seq": 99},
        {"last_by_subj": "g.1"},
        {"last_by_subj": "g.*"},
        {"last_by_subj": "g.none"},
        {"next_by_subj": "g.2"},
        {"seq": 4, "next_by_subj": "g.2"},
        {"seq": 1, "last_by_subj": "g.1"},
        {"last_by_subj": "g.1", "next_by_subj": "g.1"},
        {},
        {"batch": 2, "seq": 1},
        {"seq": 2, "no_hdr": True},
        {"nonsense": 1},
    ):
        yield api("STREAM.MSG.GET.G", body)
    yield api("STREAM.MSG.GET.G")
    yield api("STREAM.MSG.GET.NONE", {"seq": 1})
    for request in (
        {"seq": 1},
        {"seq": 99},
        {"last_by_subj": "g.1"},
        {"next_by_subj": "g.2", "seq": 4},
        {"seq": 1, "last_by_subj": "g.1"},
        {"batch": 2, "last_by_subj": "g.1"},
        {"seq": 3, "no_hdr": True},
        {"multi_last": ["zzz"]},
        {},
        {"nonsense": 1},
    ):
        yield ("direct", "DIRECT.GET.G", request, None)
    yield ("direct", "DIRECT.GET.G", b"", None)
    yield ("direct", "DIRECT.GET.G", b"{", None)
    yield ("direct", "DIRECT.GET.G.g.1", b"", None)
    yield ("direct", "DIRECT.GET.G.g.none", b"", None)
    yield ("direct", "DIRECT.GET.G.g.1", {"seq": 1}, None)
    yield ("direct", "DIRECT.GET.NONE", {"seq": 1}, None)
    for body in ({"seq": 3}, {"seq": 3}, {"seq": 99}, {}, {"seq": 5, "no_erase": True}, {"seq": 1}):
        yield api("STREAM.MSG.DELETE.G", body)
    yield api("STREAM.MSG.DELETE.C7", {"seq": 1})
    yield api("STREAM.INFO.G", {"deleted_details": True, "subjects_filter": ">"})
    for body in (
        {"seq": 1},
        {"filter": "g.1", "keep": 1},
        {"seq": 5, "keep": 1},
        {"filter": "g.0"},
        {"filter": "nothing"},
        {"keep": 2},
        {"seq": 50},
        {"bogus": 1},
    ):
        yield api("STREAM.PURGE.G", body)
        yield api("STREAM.INFO.G", {"deleted_details": True, "subjects_filter": ">"})
    yield pub("g.0", b"after the jump")
    yield api("STREAM.PURGE.G")
    yield api("STREAM.INFO.G")
    yield api("STREAM.PURGE.NONE")


def consumer_configurations() -> Iterator[Entry]:
    """Creation and update of consumers: defaults, every refusal, actions."""
    yield create("K", subjects=["k.>"])
    for i in range(6):
        yield pub(f"k.{i % 3}", b"%d" % i)
    yield consumer("K", "plain")
    yield consumer("K", "plain")
    yield consumer("K", "explicit", ack_policy="explicit")
    yield consumer("K", "explicit", ack_policy="explicit", action="create")
    yield consumer("K", "explicit", ack_policy="explicit", action="create", max_deliver=3)
    yield consumer("K", "explicit", ack_policy="explicit", action="update", max_deliver=3)
    yield consumer("K", "missing", ack_policy="explicit", action="update")
    yield consumer("K", "missing", action="nonsense")
    yield consumer("K", "explicit", ack_policy="all")
    yield consumer("K", "explicit", ack_policy="explicit", deliver_policy="new")
    yield consumer("K", "explicit", ack_policy="explicit", replay_policy="original")
    yield consumer("K", "explicit", ack_policy="explicit", max_waiting=7)
    yield consumer("K", "explicit", ack_policy="explicit", mem_storage=True)
    yield consumer("K", "explicit", ack_policy="explicit", deliver_subject="x.y")
    for config in (
        {"ack_policy": "nonsense"},
        {"deliver_policy": "nonsense"},
        {"opt_start_seq": 1},
        {"deliver_policy": "by_start_sequence"},
        {"deliver_policy": "by_start_time"},
        {"deliver_policy": "last_per_subject"},
        {"deliver_policy": "last", "opt_start_seq": 1},
        {"deliver_policy": "new", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"ack_wait": -1, "ack_policy": "explicit"},
        {"backoff": [-1], "ack_policy": "explicit"},
        {"backoff": [SECOND, 2 * SECOND], "max_deliver": 1, "ack_policy": "explicit"},
        {"backoff": [SECOND, 2 * SECOND], "max_deliver": 2, "ack_policy": "explicit"},
        {"filter_subject": "k..x"},
        {"filter_subject": "k.1", "filter_subjects": ["k.2"]},
        {"filter_subjects": ["k.1", ""]},
        {"filter_subjects": ["k.1", "k.*"]},
        {"filter_subjects": ["k.1", "k.2"]},
        {"rate_limit_bps": 1000},
        {"sample_freq": "nonsense"},
        {"sample_freq": "50%"},
        {"deliver_subject": "d", "max_waiting": 1},
        {"deliver_subject": "d", "ack_policy": "none", "max_ack_pending": 5},
        {"flow_control": True},
        {"deliver_subject": "d", "flow_control": True},
        {"idle_heartbeat": SECOND},
        {"deliver_subject": "d", "idle_heartbeat": 1000},
        {"deliver_subject": "d.*"},
        {"deliver_subject": "d..x"},
        {"deliver_subject": "k.1"},
        {"deliver_subject": "push.ok", "deliver_group": "q", "idle_heartbeat": SECOND},
        {"max_expires": 1000},
        {"num_replicas": 3},
        {"num_replicas": -1},
        {"description": "d" * 4097},
        {"metadata": {"k": "v" * 131_080}},
        {"priority_groups": ["a"]},
        {"priority_timeout": SECOND},
        {"max_batch": 10, "max_bytes": 1000, "max_expires": SECOND, "headers_only": True},
        {"inactive_threshold": 5 * SECOND, "description": "x", "metadata": {"a": "b"}},
        {"max_deliver": 0, "max_ack_pending": 5, "ack_policy": "all", "ack_wait": SECOND},
        {"bogus": 1},
        {"deliver_subject": "d", "direct": True},
    ):
        yield consumer("K", "probe", **config)
        yield api("CONSUMER.INFO.K.probe")
        yield api("CONSUMER.DELETE.K.probe")
    yield consumer("K", "a/b")
    yield consumer("K", "n" * 256)
    yield consumer("NONE", "x")
    yield ephemeral("K", "eph", ack_policy="explicit", inactive_threshold=3600 * SECOND)
    yield api("CONSUMER.CREATE.K", {"stream_name": "K", "config": {"durable_name": "d"}})
    yield api("CONSUMER.CREATE.K.x", {"stream_name": "OTHER", "config": {}})
    yield api("CONSUMER.CREATE.K.x.k.1", {"stream_name": "K", "config": {"filter_subject": "k.2"}})
    yield api(
        "CONSUMER.CREATE.K.x.k.1",
        {"stream_name": "K", "config": {"filter_subjects": ["k.1", "k.2"]}},
    )
    yield api("CONSUMER.CREATE.K.f.k.1", {"stream_name": "K", "config": {"filter_subject": "k.1"}})
    yield api("CONSUMER.CREATE.K.y", {"stream_name": "K", "config": {"durable_name": "z"}})
    yield api("CONSUMER.DURABLE.CREATE.K.d", {"stream_name": "K", "config": {}})
    yield api("CONSUMER.DURABLE.CREATE.K.d", {"stream_name": "K", "config": {"durable_name": "e"}})
    yield api("CONSUMER.DURABLE.CREATE.K.d", {"stream_name": "K", "config": {"durable_name": "d"}})
    yield api("CONSUMER.CREATE.K.x", b"{")
    yield api("CONSUMER.NAMES.K")
    yield api("CONSUMER.NAMES.K", {"offset": 2})
    yield api("CONSUMER.NAMES.NONE")
    yield api("CONSUMER.LIST.K")
    yield api("CONSUMER.INFO.K.none")
    yield api("CONSUMER.INFO.K.d", {"x": 1})
    yield api("CONSUMER.PAUSE.K.d", {"pause_until": "2200-01-01T00:00:00Z"})
    yield api("CONSUMER.INFO.K.d")
    yield api("CONSUMER.PAUSE.K.d")
    yield api("CONSUMER.PAUSE.K.d", {"pause_until": "nonsense"})
    yield api("CONSUMER.PAUSE.K.none")
    yield api("CONSUMER.DELETE.K.none")
    yield api("CONSUMER.DELETE.K.d")
    yield create("W", subjects=["w.>"], retention="workqueue")
    for config in (
        {"ack_policy": "none"},
        {"ack_policy": "all"},
        {"ack_policy": "explicit", "deliver_policy": "new"},
        {"ack_policy": "explicit", "filter_subject": "w.a"},
    ):
        yield consumer("W", "first", **config)
    yield consumer("W", "second", ack_policy="explicit", filter_subject="w.*")
    yield consumer("W", "second", ack_policy="explicit", filter_subject="w.b")
    yield consumer("W", "third", ack_policy="explicit")
    yield create("ML", subjects=["ml"], max_consumers=1)
    yield consumer("ML", "one")
    yield consumer("ML", "two")
    yield create("CL", subjects=["cl"], consumer_limits={"max_ack_pending": 5})
    yield consumer("CL", "one", ack_policy="explicit")
    yield consumer("CL", "two", ack_policy="explicit", max_ack_pending=50)
    yield consumer("CL", "three", deliver_subject="cl.d", ack_policy="none")


def pulling() -> Iterator[Entry]:
    """Pull requests and their statuses; `pull` entries collect messages until the status."""
    yield create("Q", subjects=["q.>"])
    for i in range(8):
        yield pub(f"q.{i % 2}", b"%d" % i, H=str(i))
    yield consumer("Q", "c", ack_policy="explicit", max_batch=5, max_expires=10 * SECOND)
    for body in (
        {"batch": 3, "no_wait": True},
        {"batch": 50, "no_wait": True},
        {"batch": 2, "expires": 60 * SECOND},
        {"batch": 1, "no_wait": True, "idle_heartbeat": SECOND},
        {"batch": 1, "expires": SECOND, "idle_heartbeat": SECOND},
        {"batch": 2, "no_wait": True, "max_bytes": 10},
        {"batch": 2, "no_wait": True, "group": "x"},
        {"batch": 2, "no_wait": True, "priority": 11},
        {"batch": 5, "no_wait": True},
        {"batch": 5, "no_wait": True},
        {"batch": 5, "no_wait": True},
    ):
        yield ("pull", "CONSUMER.MSG.NEXT.Q.c", body, None)
    yield ("pull", "CONSUMER.MSG.NEXT.Q.c", b'{"batch"', None)
    yield ("pull", "CONSUMER.MSG.NEXT.Q.none", {"batch": 1}, None)
    yield api("CONSUMER.INFO.Q.c")
    yield consumer("Q", "push", deliver_subject="q_push")
    yield ("pull", "CONSUMER.MSG.NEXT.Q.push", {"batch": 1, "no_wait": True}, None)
    yield consumer("Q", "filtered", ack_policy="explicit", filter_subject="q.1", headers_only=True)
    yield ("pull", "CONSUMER.MSG.NEXT.Q.filtered", {"batch": 10, "no_wait": True}, None)
    for policy in ("last", "new", "all"):
        yield consumer("Q", f"p_{policy}", deliver_policy=policy, ack_policy="explicit")
        yield ("pull", f"CONSUMER.MSG.NEXT.Q.p_{policy}", {"batch": 3, "no_wait": True}, None)
        yield api(f"CONSUMER.INFO.Q.p_{policy}")
    yield consumer(
        "Q", "lps", deliver_policy="last_per_subject", filter_subject="q.*", ack_policy="explicit"
    )
    yield ("pull", "CONSUMER.MSG.NEXT.Q.lps", {"batch": 10, "no_wait": True}, None)
    yield api("CONSUMER.INFO.Q.lps")
    yield api("CONSUMER.RESET.Q.p_all", {"seq": 5})
    yield ("pull", "CONSUMER.MSG.NEXT.Q.p_all", {"batch": 10, "no_wait": True}, None)
    yield api("CONSUMER.RESET.Q.p_new", {"seq": 5})
    yield api("CONSUMER.UNPIN.Q.c", {"group": "x"})
    yield api("INFO")


def whole_corpus() -> list[Entry]:
    """Everything, in order."""
    parts = (
        stream_configurations,
        publishing,
        reading_and_removing,
        consumer_configurations,
        pulling,
    )
    return [entry for part in parts for entry in part()]
