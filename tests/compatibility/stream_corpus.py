"""Streams at their edges: every option, header and limit, as both servers have to take them.

Continues `corpus`, whose first part is what clients do every day. Each function is run on servers
of its own, in order.
"""

from collections.abc import Iterator
from typing import Any

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, pub, update


def info(name: str, **asked: Any) -> Entry:
    """STREAM.INFO with all details, or with what is asked."""
    return api(f"STREAM.INFO.{name}", asked or {"deleted_details": True, "subjects_filter": ">"})


def configurations() -> Iterator[Entry]:
    """Each option of a new stream, alone."""
    yield create("A", subjects=["a.>"])
    for options in _OPTIONS:
        yield api("STREAM.CREATE.P", {"name": "P", **options})
        if "$JS" not in str(options):  # such a stream stores advisories, whose sizes differ
            yield api("STREAM.INFO.P")
        yield api("STREAM.DELETE.P")
    for name in ("a*", "a>", "a/b", "a\\b", "x" * 255, "x" * 256, "ü", "$x", "a=b"):
        yield api(f"STREAM.CREATE.{name}", {"name": name})
        yield api(f"STREAM.DELETE.{name}")
    yield api("STREAM.CREATE.a_b", {"name": "a b"})
    for body in (
        b"", b"[]", b"null", b"{}", b'{"name":"P",}', b'{"name":"P" "x":1}', b'{"name":"P"} x',
        b"xx", b'{"name":"P\xff"}', b'{"name":"P"}{"name":"P","max_msgs":3}',
    ):  # fmt: skip
        yield api("STREAM.CREATE.P", body)
    yield api("STREAM.INFO.P")
    for level in ("0", "1", "01", "+1", "-1", "", "99", "9" * 30, "x", "1x", "1.0"):
        for call in ("CREATE", "UPDATE", "INFO"):
            yield api(f"STREAM.{call}.P", {"name": "P"}, {"Nats-Required-Api-Level": level})


_OPTIONS: list[dict[str, Any]] = [
    {"description": "x" * 4096}, {"max_age": SECOND // 10}, {"max_age": 50 * SECOND},
    {"duplicate_window": SECOND // 10}, {"max_age": SECOND, "duplicate_window": SECOND},
    {"subjects": []}, {"subjects": [""]}, {"subjects": ["a b"]},
    {"subjects": ["x.*.>"]}, {"subjects": ["*"]}, {"subjects": ["foo.>", "foo.bar"]},
    {"subjects": [">"], "no_ack": True}, {"subjects": ["*.>"]},
    {"subjects": ["$JS.EVENT.ADVISORY.>"]}, {"subjects": ["$JS.EVENT.>"]},
    {"subjects": ["$JS.EVENT"]}, {"subjects": ["$JSC.x"]}, {"subjects": ["$NRG.x"]},
    {"subjects": ["$SYS.ACCOUNT.>"]}, {"subjects": ["$SYS.ACCOUNT.x.y"]},
    {"subjects": ["$SYS.>"]}, {"subjects": ["$SYS"]}, {"subjects": ["*.x"]},
    {"subjects": ["$KV.b.>"]}, {"max_msgs": -2}, {"max_msg_size": 2**31 - 1},
    {"max_msgs": 5, "discard": "new", "max_bytes": 100}, {"max_msg_size": 2**31},
    {"max_msgs": 2**63}, {"max_msgs": 2**63 - 1}, {"max_msgs": 1.5}, {"max_msgs": "1"},
    {"max_msgs": True}, {"max_msgs": 1.0}, {"num_replicas": 2}, {"num_replicas": 0},
    {"num_replicas": 5}, {"first_seq": 100}, {"first_seq": -1},
    {"metadata": {"a": "b", "_nats.ver": "9", "_nats.level": "7", "_nats.req.level": "5"}},
    {"metadata": {"a": 1}}, {"metadata": None}, {"placement": {}},
    {"placement": {"cluster": "c"}}, {"placement": {"tags": ["x"]}},
    {"republish": {"dest": "rp.>"}}, {"republish": {"src": ">", "dest": "rp.>"}},
    {"republish": {"src": "P.*", "dest": "rp.{{wildcard(1)}}"}}, {"republish": {}},
    {"republish": {"src": "foo"}}, {"republish": {"src": "q.>", "dest": "rp"}},
    {"republish": {"src": ">", "dest": "P.>"}},
    {"republish": {"dest": "rp.>", "headers_only": True}},
    {"subject_transform": {"dest": "t.>"}}, {"subject_transform": {}},
    {"persist_mode": "async"}, {"persist_mode": ""}, {"persist_mode": "default"},
    {"persist_mode": "x"}, {"persist_mode": "async", "storage": "memory"},
    {"retention": "interest", "max_age": 5 * SECOND}, {"retention": "LIMITS"},
    {"retention": None}, {"storage": None}, {"storage": "FILE"}, {"discard": "Old"},
    {"discard": None}, {"compression": "S2"}, {"compression": "s2", "storage": "memory"},
    {"discard": "new", "max_msgs_per_subject": 5, "discard_new_per_subject": True},
    {"consumer_limits": {"inactive_threshold": -1}}, {"consumer_limits": {"max_ack_pending": -1}},
    {"consumer_limits": None}, {"consumer_limits": {"x": 1}}, {"template_owner": "x"},
    {"pedantic": True}, {"pedantic": True, "max_age": SECOND},
    {"pedantic": True, "max_age": SECOND, "duplicate_window": SECOND},
    {"pedantic": True, "republish": {"dest": "rp.>"}}, {"pedantic": True, "max_bytes": -2},
    {"pedantic": True, "max_msgs_per_subject": -2}, {"pedantic": True, "max_msg_size": -2},
    {"pedantic": True, "max_consumers": -2}, {"deny_delete": True, "deny_purge": True},
    {"allow_direct": True, "no_ack": True}, {"Name": "P"}, {"MAX_MSGS": 5},
]  # fmt: skip


def transforms() -> Iterator[Entry]:
    """Sources and destinations that can and can not be."""
    for source, dest in (
        ("P.*", "t.{{wildcard(1,2)}}"), ("P.*", "t.{{wildcard(2)}}"), ("P.*", "t.{{wildcard(x)}}"),
        ("P.*.*", "t.{{wildcard(1)}}.{{wildcard(1)}}"), ("P.*", "t.$x"), ("P.*", "t.$2"),
        ("P.*", "t"), ("P", "t"), ("P.*", "t.{{partition()}}"), ("P.*", "t.{{partition(0,1)}}"),
        ("P.*", "t.{{partition(3)}}"), ("P.*", "t.{{partition(3,2)}}"),
        ("P.*", "t.{{partition(3,x)}}"), ("P.*", "t.{{partition(99999999999,1)}}"),
        ("P.*", "t.{{random()}}"), ("P.*", "t.{{random(x)}}"), ("P.*", "t.{{random(0)}}"),
        ("P.*", "t.{{split(1)}}"), ("P.*", "t.{{split(1,)}}"), ("P.*", "t.{{split(1, )}}"),
        ("P.*", "t.{{split(1,-,x)}}"), ("P.*", "t.{{split(2,-)}}"), ("P", "t.{{split(1,-)}}"),
        ("P.*", "t.{{splitFromLeft(1)}}"), ("P.*", "t.{{SplitFromLeft(1,2)}}"),
        ("P.*", "t.{{left(2,1)}}"), ("P.*", "t.{{ left ( 1 , 1 ) }}"), ("P.*", "t.{{left(1,x)}}"),
        ("P.*", "t.{{foo(1)}}"), ("P.*", "t.{{wildcard(1)"), ("P.*", "t.x{{wildcard(1)}}"),
        ("P.*", "{{wildcard(1)}}"), ("P..x", "t"), ("P.>", "t.>"), ("P.*", ">"), ("P.*", "*"),
        ("P.*", "t.>"), ("P.>", "t.*"), ("P.>", "t"), ("P.*.>", "t.{{wildcard(1)}}.>"),
        (">", ">"), ("", "t.>"), ("P", "P"), ("P", "t..x"), ("P", "t.{{partition(3,1)}}"),
        ("P", "t.$1"), ("P.*.*", "t.{{wildcard(1)}}"),
    ):  # fmt: skip
        for option in ("subject_transform", "republish"):
            # A republished message may not come back to the stream.
            target = "r." + dest if option == "republish" else dest
            yield create("P", subjects=["P.>"], **{option: {"src": source, "dest": target}})
            yield api("STREAM.DELETE.P")


def updates() -> Iterator[Entry]:
    """What may change, and what follows from it."""
    yield create("A", subjects=["a.>"])
    yield create("U", subjects=["u.>"], max_msgs=10)
    for options in (
        {"subjects": ["u.>", "v"]}, {"subjects": ["a.x"]}, {"subjects": ["u.>"], "max_msgs": 2},
        {"subjects": ["u.>"], "num_replicas": 3},
        {"subjects": ["u.>"], "sealed": True, "max_age": SECOND, "allow_rollup_hdrs": True},
        {"subjects": ["u.>"]}, {"subjects": ["u.>"], "sealed": True},
    ):  # fmt: skip
        yield update("U", **options)
        yield api("STREAM.INFO.U")
    fixed: dict[str, Any] = {"subjects": ["u2"], "deny_delete": True, "deny_purge": True}
    yield create("U2", **fixed)
    changes: tuple[dict[str, Any], ...] = (
        {"deny_purge": False}, {"deny_delete": False}, {"first_seq": 50},
        {"retention": "workqueue"}, {"retention": "interest"}, {"persist_mode": "async"},
        {"mirror_direct": True}, {"max_consumers": 5}, {"subjects": []}, {"bogus": 1},
        {"metadata": {"x": "y"}, "placement": {"cluster": "x"}},
    )  # fmt: skip
    for change in changes:
        yield update("U2", **{**fixed, **change})
    yield api("STREAM.UPDATE.NO", {"name": "NO", "max_age": 1})
    yield create("WQ", subjects=["wq"], retention="workqueue")
    yield update("WQ", subjects=["wq"], retention="limits")
    yield update("WQ", subjects=["wq"], retention="interest")
    yield create("CL", subjects=["cl"])
    yield consumer("CL", "c1", ack_policy="explicit", inactive_threshold=60 * SECOND)
    yield consumer("CL", "c2", ack_policy="explicit", max_ack_pending=500)
    for limits in (
        {"max_ack_pending": 100, "inactive_threshold": 10 * SECOND}, {"max_ack_pending": 1000},
        {"inactive_threshold": 60 * SECOND}, {"inactive_threshold": 30 * SECOND},
    ):  # fmt: skip
        yield update("CL", subjects=["cl"], consumer_limits=limits)
    for call in ("LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE", "CANCEL_MOVE"):
        yield api(f"STREAM.{call}.CL", {"peer": "x"})
    for call in ("LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE"):
        yield api(f"CONSUMER.{call}.CL.c1", {"peer": "x"})
    yield api("STREAM.SNAPSHOT.NO", {"deliver_subject": "x"})
    yield api("STREAM.SNAPSHOT.CL")
    yield api("STREAM.SNAPSHOT.CL", {"deliver_subject": "x.*"})
    yield api("STREAM.RESTORE.CL", {"config": {"name": "CL"}, "state": {}})
    yield api("STREAM.RESTORE.CL")
    yield api("STREAM.SNAPSHOT.CL", {"deliver_subject": "x y"})
    yield api("STREAM.SNAPSHOT.CL", {"deliver_subject": "x", "other": 1})
    yield api("STREAM.RESTORE.OTHER", {"config": {"name": "CL"}, "state": {}})
    yield api("STREAM.RESTORE.OTHER", {"config": {"name": "OTHER"}, "state": {}, "other": 1})
    yield api("STREAM.RESTORE.OTHER", {"config": {"name": "OTHER", "retention": "x"}})
    yield api("STREAM.RESTORE.OTHER", b"x")
    yield api("STREAM.RESTORE.OTHER", {})
    for asked in (b"junk", {"subject": "a.*"}, {"offset": -5}, {"subject": "bad..x"}, b"[]"):
        yield api("STREAM.NAMES", asked)
    for body in (b"{ }", b" ", b"x"):
        yield api("STREAM.DELETE.A", body)
    yield create("UP", subjects=["up.>"])
    for i in range(12):
        yield pub(f"up.{i % 3}")
    for bound in ({"max_msgs_per_subject": 2}, {"max_msgs": 3}, {"max_bytes": 70}):
        yield update("UP", subjects=["up.>"], **bound)
        yield info("UP")
    yield update("UP", subjects=["zz.>"])
    yield pub("up.1")
    yield pub("zz.1")
    yield info("UP")


_HEADERS: list[dict[str, str]] = [
    {"Nats_Msg_Id": ""}, {"Nats_Msg_Id": "a"}, {"Nats_Msg_Id": "a"}, {"nats_msg_id": "a"},
    {"Nats_Expected_Stream": ""}, {"Nats_Expected_Last_Sequence": ""},
    {"Nats_Expected_Last_Sequence": "-1"}, {"Nats_Expected_Last_Sequence": "0x1"},
    {"Nats_Expected_Last_Sequence": "01"}, {"Nats_Expected_Last_Sequence": "9" * 20},
    {"Nats_Expected_Last_Subject_Sequence": ""}, {"Nats_Expected_Last_Subject_Sequence": "x"},
    {"Nats_Expected_Last_Subject_Sequence": "1",
     "Nats_Expected_Last_Subject_Sequence_Subject": "p.*"},
    {"Nats_Expected_Last_Subject_Sequence": "0",
     "Nats_Expected_Last_Subject_Sequence_Subject": "other.x"},
    {"Nats_Expected_Last_Subject_Sequence": "0",
     "Nats_Expected_Last_Subject_Sequence_Subject": ""},
    {"Nats_Expected_Last_Subject_Sequence": "9",
     "Nats_Expected_Last_Subject_Sequence_Subject": "p.>"},
    {"Nats_Expected_Last_Msg_Id": ""}, {"Nats_Expected_Last_Msg_Id": "zz"}, {"Nats_Msg_Id": "b"},
    {"Nats_Expected_Last_Msg_Id": "b"}, {"Nats_Expected_Last_Msg_Id": "b"}, {"Nats_Rollup": "all"},
    {"Nats_Rollup": ""}, {"Nats_TTL": "1"}, {"Nats_TTL": ""}, {"Nats_TTL": "zz"},
    {"Nats_TTL": "0"}, {"Nats_TTL": "-1"}, {"Nats_TTL": "500ms"}, {"Nats_TTL": "never"},
    {"Nats_TTL": "zz", "Nats_Rollup": "sub"}, {"Nats_TTL": "1s", "Nats_Incr": "1"},
    {"Nats_TTL": "zz", "Nats_Expected_Last_Sequence": "88"}, {"Nats_Incr": "x"}, {"Nats_Incr": ""},
    {"Nats_Incr": "+5"}, {"Nats_Incr": "5.5"}, {"Nats_Incr": "0x5"}, {"Nats_Batch_Id": ""},
    {"Nats_Batch_Id": "x"}, {"Nats_Batch_Id": "x" * 65, "Nats_Batch_Sequence": "1"},
    {"Nats_Batch_Id": "x", "Nats_Expected_Stream": "q"}, {"Nats_Batch_Id": "x", "Nats_Incr": "q"},
    {"Nats_Batch_Sequence": "1"}, {"Nats_Batch_Commit": "1"}, {"Nats_Schedule": ""},
    {"Nats_Schedule": "x"}, {"Nats_Schedule_Target": "x"}, {"Nats_Scheduler": "x"},
    {"Nats_Schedule_Next": "purge"}, {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "p.x"},
    {"Nats_Schedule_Next": "purge", "Nats_Scheduler": "p.a"}, {"Nats_Schedule_TTL": "1s"},
    {"Nats_Stream_Source": ""}, {"Nats_Stream_Source": "x", "Nats_Rollup": "sub"},
    {"Nats_Marker_Reason": "MaxAge"}, {"KV_Operation": "DEL"}, {"Nats_Request_Info": "{}"},
    {"Nats_Required_Api_Level": "x"}, {"Nats_Stream": "X"},
    {"Nats_Expected_Stream": "Q", "Nats_Msg_Id": "a"},
    {"Nats_Msg_Id": "a", "Nats_Expected_Last_Msg_Id": "q"},
    {"Nats_Msg_Id": "a", "Nats_Expected_Last_Sequence": "77"},
    {"Nats_Msg_Id": "a", "Nats_Rollup": "zz"}, {"Nats_Msg_Id": "a", "Nats_TTL": "zz"},
]  # fmt: skip


def headers() -> Iterator[Entry]:
    """Each header of a publish, and which of two errors comes first."""
    yield create("P", subjects=["p.>"])
    for fields in _HEADERS:
        yield pub("p.a", b"z", **fields)
    yield info("P")
    for seq in range(1, 34):
        yield api("STREAM.MSG.GET.P", {"seq": seq})
    yield create("Z", subjects=["z.>"], max_msg_size=10)
    for fields in _HEADERS:
        yield pub("z.a", b"x" * 30, **fields)
    yield create("ZS", subjects=["zs"], max_msg_size=10)
    yield update("ZS", subjects=["zs"], max_msg_size=10, sealed=True)
    yield pub("zs", b"x" * 30)
    yield pub("zs", b"x", Nats_Incr="1")
    yield create("H", subjects=["h"])
    for fields in ({"A": "y" * 65_000}, {"A": "y" * 65_536}, {"Nats_Msg_Id": "y" * 65_536}):
        yield pub("h", b"x", **fields)
        yield pub("h", b"x", **fields, Nats_Expected_Stream="q")
    yield create("O", subjects=["o.>"], allow_rollup_hdrs=True, discard="new", max_msgs=2)
    for fields in (
        {"Nats_Rollup": "sub"}, {"Nats_Rollup": "sub", "Nats_Msg_Id": "q"}, {"Nats_Rollup": "all"},
        {"Nats_Rollup": "SUB"}, {"Nats_Rollup": " sub"}, {"Nats_Rollup": "X Y"},
    ):  # fmt: skip
        yield pub("o.a", b"z", **fields)
        yield info("O")
    for i in range(4):
        yield pub(f"o.{i}")
    yield pub("o.0", b"r", Nats_Rollup="sub")
    yield pub("o.9", b"r", Nats_Rollup="all")
    yield info("O")


def limits() -> Iterator[Entry]:
    """What is dropped and what is refused when a stream is full."""
    for name, is_per_subject in (("D0", False), ("D1", True)):
        yield create(
            name, subjects=[f"{name}.>"], discard="new", max_msgs=3, max_msgs_per_subject=1,
            discard_new_per_subject=is_per_subject, allow_rollup_hdrs=True,
        )  # fmt: skip
        for token in "abacdba":
            yield pub(f"{name}.{token}", b"v")
        yield pub(f"{name}.a", b"roll", Nats_Rollup="sub")
        yield pub(f"{name}.z", b"roll", Nats_Rollup="sub")
        yield info(name)
    sizes = (("a", 10), ("b", 10), ("c", 50), ("a", 10), ("a", 60), ("b", 5), ("d", 10), ("d", 200))
    for name, options in (
        ("DB", {"discard": "new", "max_bytes": 150, "max_msgs_per_subject": 1}),
        ("DE", {"discard": "new", "max_bytes": 88, "max_msgs_per_subject": 1}),
        ("OB", {"max_bytes": 150, "max_msgs": 3, "max_msgs_per_subject": 2}),
        ("OM", {"storage": "memory", "max_bytes": 100}),
    ):
        yield create(name, subjects=[f"{name}.>"], **options)
        for token, size in sizes:
            yield pub(f"{name}.{token}", b"v" * size)
            yield info(name)
    yield create("ZN", subjects=["zn.>"], max_msgs=1, discard="new")
    yield pub("zn.a")
    yield pub("zn.a", b"x", Nats_Msg_Id="1")
    yield pub("zn.a", b"x", Nats_Msg_Id="1")
    yield pub("zn.a", b"x", Nats_Expected_Last_Sequence="7")


def removals() -> Iterator[Entry]:
    """Purges and deletions of every kind."""
    yield create("PU", subjects=["pu.>"])
    for i in range(10):
        yield pub(f"pu.{i % 2}")
    for asked in (
        {"keep": 0}, {"keep": 100}, {"seq": 1}, {"seq": 0}, {"filter": "pu.0", "seq": 4},
        {"filter": "pu.1", "keep": 2}, {"filter": "zz"}, {"filter": ">", "keep": 3},
        {"filter": "pu.*", "seq": 8}, {"seq": 11}, {"seq": 12}, {"seq": 20, "filter": "pu.0"},
        {"seq": 20, "filter": ">"}, {"filter": "bad..x"}, {"seq": 30}, b"junk", b"", b"{",
    ):  # fmt: skip
        yield api("STREAM.PURGE.PU", asked)
        yield info("PU")
    yield pub("pu.1")
    yield info("PU")
    yield create("FS", subjects=["fs"], first_seq=50)
    yield info("FS")
    for _ in range(4):
        yield pub("fs")
    yield update("FS", subjects=["fs"], first_seq=500)
    for seq in (0, 3, 51, 51, 50, 50, 53, 53, 54):
        yield api("STREAM.MSG.DELETE.FS", {"seq": seq})
        yield info("FS")
    for body in ({"no_erase": True}, {"seq": 52, "x": 1}, b""):
        yield api("STREAM.MSG.DELETE.FS", body)
    yield api("STREAM.PURGE.FS")
    yield pub("fs")
    yield info("FS")
    for storage in ("file", "memory"):
        for asked in (b"", {"filter": ">"}, {"filter": "e.x"}, {"keep": 5}, {"seq": 1}, {"seq": 5}):
            yield create("EM", subjects=["em.>"], storage=storage)
            yield api("STREAM.PURGE.EM", asked)
            yield api("STREAM.INFO.EM")
            yield api("STREAM.PURGE.EM")
            yield api("STREAM.INFO.EM")
            yield api("STREAM.DELETE.EM")
        for first in (1, 10):
            yield create("EM", subjects=["em.>"], storage=storage, first_seq=first)
            yield api("STREAM.INFO.EM")
            yield api("STREAM.DELETE.EM")
    yield create("DD", subjects=["dd"], deny_delete=True, deny_purge=True)
    yield pub("dd")
    for seq in (1, 9):
        yield api("STREAM.MSG.DELETE.DD", {"seq": seq})
    yield api("STREAM.PURGE.DD")


def interest() -> Iterator[Entry]:
    """What interest retention stores, and when it lets go; and subject transforms."""
    yield create("I", subjects=["i.>"], retention="interest")
    yield pub("i.a", Nats_Msg_Id="1")
    yield pub("i.a", Nats_Msg_Id="1")
    yield pub("i.a", Nats_Expected_Last_Sequence="1")
    yield pub("i.a", Nats_Expected_Last_Subject_Sequence="0")
    yield info("I")
    yield consumer("I", "c", ack_policy="explicit", filter_subject="i.b")
    for token in "abb":
        yield pub(f"i.{token}")
    yield consumer("I", "d", ack_policy="explicit")
    yield pub("i.c")
    for name in "cd":
        yield info("I")
        yield api(f"CONSUMER.DELETE.I.{name}")
    yield info("I")
    yield create("LI", subjects=["li.>"])
    for i in range(4):
        yield pub(f"li.{i % 2}")
    yield consumer("LI", "c", ack_policy="explicit", filter_subject="li.1")
    yield update("LI", subjects=["li.>"], retention="interest")
    yield pub("li.0")
    yield pub("li.1")
    yield info("LI")
    yield update("LI", subjects=["li.>"], retention="limits")
    yield pub("li.0")
    yield info("LI")
    yield create("IR", subjects=["ir.>"], retention="interest", allow_rollup_hdrs=True)
    yield pub("ir.a", Nats_Rollup="sub")
    yield consumer("IR", "c", ack_policy="explicit")
    for token, rollup in (("a", ""), ("b", ""), ("a", "sub"), ("a", "all")):
        yield pub(f"ir.{token}", Nats_Rollup=rollup)
        yield info("IR")
    yield create(
        "T1", subjects=["t1.>"], max_msgs_per_subject=1, allow_direct=True,
        subject_transform={"src": "t1.a.*", "dest": "t2.{{wildcard(1)}}"},
    )  # fmt: skip
    yield pub("t1.a.x")
    yield pub("t1.b.x")
    yield pub("t1.a.x", Nats_Expected_Last_Subject_Sequence="1")
    yield pub("t1.a.x", Nats_Expected_Last_Subject_Sequence="0")
    yield ("direct", "DIRECT.GET.T1.t2.x", b"", None)
    yield ("direct", "DIRECT.GET.T1.t1.a.x", b"", None)
    for name, subject in (("c", "t2.*"), ("d", "t1.>"), ("e", "q.>")):
        yield consumer("T1", name, filter_subject=subject)
    for offset in (0, 1, 9, -3):
        yield info("T1", subjects_filter="t2.*", offset=offset)
    yield info("T1", subjects_filter="a..b")


PARTS = (configurations, transforms, updates, headers, limits, removals, interest)
