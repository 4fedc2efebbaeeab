"""Fast batches get the same answers from Slipstream and from nats-server.

A script is a list of messages: what their reply subjects say, headers, subject. After each script
both servers have sent the same messages, in the same order, and hold as many.
"""

from typing import Any

import pytest

from slipstream.server import Server
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PREFIX = "_INBOX.fast"
MARK = "_INBOX.fast.mark"
Step = tuple[str, dict[str, str] | None, str]


def step(place: str, headers: dict[str, str] | None = None, subject: str = "s.a") -> Step:
    """A message of a batch: batch, flow, gap mode, number and operation."""
    return place, headers, subject


SCRIPTS: dict[str, list[Step]] = {
    "plain10": [step(f"b.10.fail.{n}.{0 if n == 1 else 1}") for n in range(1, 13)]
    + [step("b.10.fail.13.2")],
    "flow3": [step(f"c.3.ok.{n}.{0 if n == 1 else 1}") for n in range(1, 8)] + [step("c.3.ok.8.3")],
    "flow0": [step("d.0.fail.1.0"), step("d.0.fail.2.2")],
    "flowbig": [step("d.100000.fail.1.0"), step("d.100000.fail.2.2")],
    "single": [step("e.10.fail.1.2")],
    "eob1": [step("e1.10.fail.1.3")],
    "start0": [step("e2.10.fail.2.0")],
    "append1": [step("e3.10.fail.1.1")],
    "gapfail": [
        step("g.10.fail.1.0"),
        step("g.10.fail.2.1"),
        step("g.10.fail.4.1"),
        step("g.10.fail.5.1"),
        step("g.10.fail.6.2"),
    ],
    "gapok": [step("h.10.ok.1.0"), step("h.10.ok.2.1"), step("h.10.ok.5.1"), step("h.10.ok.6.2")],
    "dupseq": [
        step("h2.10.ok.1.0"),
        step("h2.10.ok.2.1"),
        step("h2.10.ok.2.1"),
        step("h2.10.ok.3.2"),
    ],
    "dupseqfail": [
        step("h3.10.fail.1.0"),
        step("h3.10.fail.2.1"),
        step("h3.10.fail.2.1"),
        step("h3.10.fail.3.2"),
    ],
    "gapcommit": [step("h4.10.fail.1.0"), step("h4.10.fail.3.2")],
    "gapcommitok": [step("h5.10.ok.1.0"), step("h5.10.ok.3.2")],
    "gapeob": [step("h6.10.fail.1.0"), step("h6.10.fail.4.3")],
    "gapeobok": [step("h7.10.ok.1.0"), step("h7.10.ok.4.3")],
    "ping": [
        step("i.10.ok.1.0"),
        step("i.10.ok.1.4"),
        step("i.10.ok.3.4"),
        step("i.10.ok.2.1"),
        step("i.10.ok.2.4"),
        step("i.10.ok.3.2"),
    ],
    "pingfail": [step("i2.10.fail.1.0"), step("i2.10.fail.3.4"), step("i2.10.fail.2.2")],
    "pingunknown": [step("i3.10.fail.1.4")],
    "unknown": [step("j.10.fail.5.1"), step("j.10.fail.5.2"), step("j.10.fail.5.3")],
    "longid": [step("x" * 65 + ".10.fail.1.0")],
    "badpat": [
        step("k.10.maybe.1.0"),
        step("k.x.fail.1.0"),
        step("k.10.fail.x.0"),
        step("k.10.fail.0.0"),
        step("k.10.fail.1.9"),
        step("k.10.fail.1.x"),
        step("k.-5.fail.1.0"),
        step("k.10.fail.1"),
    ],
    "errfirst": [
        step("l.10.fail.1.0", {"Nats-Expected-Last-Sequence": "999"}),
        step("l.10.fail.2.1"),
    ],
    "errfirstok": [
        step("l2.10.ok.1.0", {"Nats-Expected-Last-Sequence": "999"}),
        step("l2.10.ok.2.1"),
        step("l2.10.ok.3.2"),
    ],
    "errlater": [
        step("m.10.fail.1.0"),
        step("m.10.fail.2.1", {"Nats-Expected-Last-Sequence": "999"}),
        step("m.10.fail.3.2"),
    ],
    "errlaterok": [
        step("n.10.ok.1.0"),
        step("n.10.ok.2.1", {"Nats-Expected-Last-Sequence": "999"}),
        step("n.10.ok.3.2"),
    ],
    "errcommit": [
        step("n2.10.fail.1.0"),
        step("n2.10.fail.2.2", {"Nats-Expected-Last-Sequence": "999"}),
    ],
    "errcommitok": [
        step("n3.10.ok.1.0"),
        step("n3.10.ok.2.2", {"Nats-Expected-Last-Sequence": "999"}),
    ],
    "dup": [
        step("o.10.fail.1.0", {"Nats-Msg-Id": "i1"}),
        step("o.10.fail.2.1", {"Nats-Msg-Id": "i1"}),
        step("o.10.fail.3.2", {"Nats-Msg-Id": "i2"}),
    ],
    "dupsingle": [step("p.10.fail.1.2", {"Nats-Msg-Id": "i1"})],
    "dupfirst": [step("p2.10.fail.1.0", {"Nats-Msg-Id": "i1"}), step("p2.10.fail.2.3")],
    "restart": [step("q.10.fail.1.0"), step("q.10.fail.1.0"), step("q.10.fail.2.2")],
    "level": [step("r.10.fail.1.0", {"Nats-Required-Api-Level": "99"}), step("r.10.fail.2.2")],
    "two": [step("t1.10.fail.1.0"), step("t2.10.fail.1.0")]
    + [step(f"t{b}.10.fail.{n}.1") for n in range(2, 9) for b in (1, 2)]
    + [step("t1.10.fail.9.3"), step("t2.10.fail.9.3")],
    "atomic": [
        step("u.10.fail.1.0", {"Nats-Batch-Id": "z", "Nats-Batch-Sequence": "1"}),
        step("u.10.fail.2.2"),
    ],
    "other": [step("v.10.fail.1.0"), step("v.10.fail.2.1", None, "t.a"), step("v.10.fail.2.2")],
    "nostream": [step("w.10.fail.1.0", None, "off.a")],
}


def play(client: RawClient, steps: list[Step]) -> tuple[list[tuple[str, bytes, Any]], int]:
    """What a server sends, and how many messages it has then. Each stream answers in order."""
    for place, headers, subject in steps:
        client.publish(subject, b"x", headers, f"{PREFIX}.{place}.$FI".encode())
    streams = {subject.split(".")[0] for _, _, subject in steps}
    for stream in streams:
        client.publish(f"{stream}.mark", b"x", None, MARK.encode())
    found = []
    marks = 0
    while marks < len(streams):
        message = client.next_message()
        if message.subject == MARK:
            marks += 1
        else:
            found.append((message.subject, message.header, message.json()))
    if len(streams) > 1:
        found.sort(key=str)
    return found, client.api("STREAM.INFO.S")["state"]["messages"]


@pytest.mark.parametrize("leave_open", [False, True])
def test_fast_batches_are_answered_as_nats_server_answers_them(
    jetstream_server: Server, nats_server: NatsServer, leave_open: bool
) -> None:
    with RawClient(jetstream_server.port) as ours, RawClient(nats_server.port) as theirs:
        for client in (ours, theirs):
            client.subscribe(f"{PREFIX}.>", 9)
            for name, options in (("S", {"allow_batched": True}), ("T", {"allow_batched": True}),
                                  ("OFF", {})):  # fmt: skip
                config = {"name": name, "subjects": [f"{name.lower()}.>"], **options}
                assert "error" not in client.api(f"STREAM.CREATE.{name}", config)
            if leave_open:  # then the others share what may be on its way
                play(client, [step("other.20.ok.1.0")])
        for name, steps in SCRIPTS.items():
            assert play(ours, steps) == play(theirs, steps), name
