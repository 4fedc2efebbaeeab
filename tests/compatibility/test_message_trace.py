"""A traced message shows where it went, with the same events as on nats-server (ADR-41)."""

import json
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from slipstream import Server
from slipstream.server.config import load_text
from tests.fix_nats_server import NatsServer
from tests.server.plain_client import plain_client

TRACED = {"Nats-Trace-Dest": "traces"}
ONLY = TRACED | {"Nats-Trace-Only": "true"}
FIRST, SECOND = {"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "2"}

# Subject, headers and whether an answer is asked for.
CASES: list[tuple[str, dict[str, str], bool]] = [
    ("one.a", TRACED, False),
    ("one.a", ONLY, False),
    ("one.a", ONLY, True),
    *(("one.a", TRACED | {"Nats-Trace-Only": word}, False) for word in ("1", "on", "TRUE")),
    *(("one.a", TRACED | {"Nats-Trace-Only": word}, False) for word in ("0", "yes", "false")),
    ("one.a", {"Nats-Trace-Only": "true"}, False),
    ("one.a", {"nats-trace-dest": "traces"}, False),
    *(
        ("one.a", ONLY | {"Nats-Trace-Dest": to}, False)
        for to in ("traces.*", "a..b", "trace disabled", "")
    ),
    ("one.a", TRACED | {"b": "2", "a": "1"}, False),
    ("nobody", TRACED, True),
    ("nobody", ONLY, True),
    ("js.a", TRACED, True),
    ("js.a", TRACED, False),
    ("js.a", ONLY, True),
    ("js.a", {"Nats-Trace-Only": "true"}, True),
    ("js.a", TRACED | FIRST, True),
    ("js.a", TRACED | FIRST, True),
    ("js.a", ONLY | FIRST, True),
    ("js.a", ONLY | SECOND, True),
    ("js.a", TRACED | SECOND, True),
    ("js.a", TRACED | {"Nats-Expected-Last-Sequence": "77"}, True),
    ("js.a", ONLY | {"Nats-Expected-Last-Sequence": "77"}, True),
    ("$JS.API.STREAM.NAMES", TRACED, True),
    ("$JS.API.STREAM.NAMES", ONLY, True),
    ("$SYS.REQ.USER.INFO", TRACED, True),
]


class Watched:
    """One server with a publisher, a subscriber and a stream, and a reader of the traces."""

    async def open(self, url: str) -> None:
        self.publisher = await nats.connect(url, name="publisher")
        self.subscriber = await nats.connect(url, name="subscriber")
        self.traces = await self.subscriber.subscribe("traces")
        self.found = [
            await self.subscriber.subscribe(subject, queue)
            for subject, queue in (("one.a", ""), ("one.*", ""), ("one.>", "q"), ("rp.>", ""))
        ]
        self.answers = await self.publisher.subscribe("answers")
        await self.subscriber.flush()
        js = self.publisher.jetstream()
        await js.add_stream(name="S", subjects=["js.>"])
        self.js = js

    async def publish(
        self,
        subject: str,
        headers: dict[str, str],
        with_reply: bool,
        traces: int = 0,
        answers: int = 0,
    ) -> Any:
        """What happens then. nats-server sends traces and some answers in its own time: wait for
        so many of them."""
        reply = "answers" if with_reply else ""
        await self.publisher.publish(subject, b"hello", reply, headers)
        for client in (self.publisher, self.subscriber):
            await client.flush()
        # What was published before this one has been answered, when this one is.
        last_seq = (await self.js.publish("js.last")).seq
        return {
            "traces": [_plain(json.loads(m.data)) for m in await _taken(self.traces, traces)],
            "deliveries": [len(await _taken(found)) for found in self.found],
            "answers": [_answer(m) for m in await _taken(self.answers, answers)],
            "last_seq": last_seq,
        }

    async def last_message(self) -> Any:
        """The headers of the newest message that was traced."""
        return (await self.js.get_msg("S", subject="js.a")).headers

    async def close(self) -> None:
        await self.publisher.close()
        await self.subscriber.close()


async def _taken(subscription: Any, least: int = 0) -> list[Msg]:
    """What has come; waits for `least` messages."""
    found: list[Msg] = []
    while len(found) < least or subscription.pending_msgs:
        found.append(await subscription.next_msg(30))
    return found


def _answer(message: Msg) -> Any:
    """Its status, or which fields it has."""
    if not message.data:
        return dict(message.headers or {})
    return sorted(json.loads(message.data))


def _plain(trace: dict[str, Any]) -> Any:
    """A trace without what differs from run to run, and without the words of errors."""
    assert {"name", "id", "ver", "seq", "time"} <= set(trace["server"])
    for event in trace["events"]:
        assert event.pop("ts")
        if event["type"] in ("in", "eg"):
            assert event.pop("cid") > 0
        if "error" in event:
            event["error"] = True
    return {"request": trace["request"], "events": trace["events"]}


async def test_traced_messages_go_where_nats_server_sends_them(
    jetstream_server: Server, nats_server: NatsServer
) -> None:
    both = Watched(), Watched()
    for watched, url in zip(both, (jetstream_server.url, nats_server.url), strict=True):
        await watched.open(url)
    for case in CASES:
        ours = await both[0].publish(*case)
        theirs = await both[1].publish(*case, len(ours["traces"]), len(ours["answers"]))
        assert ours == theirs, case
    ours, theirs = [await watched.last_message() for watched in both]
    assert ours == theirs == TRACED | SECOND | {"Nats-Trace-Dest": "trace disabled"}
    for watched in both:
        await watched.close()


CONFIG = """
port: -1, host: 127.0.0.1
mappings { old: new }
authorization { users: [
  {user: a, password: a, permissions: {publish: {deny: secret}}}
  {user: b, password: b, permissions: {subscribe: {deny: new}}}
] }
"""


async def traced(client: Client, subject: str) -> list[dict[str, Any]]:
    """The events of a message to `subject`."""
    traces = await client.subscribe("traces")
    await client.publish(subject, b"", headers=TRACED)
    events: list[dict[str, Any]] = json.loads((await traces.next_msg(30)).data)["events"]
    await traces.unsubscribe()
    return events


async def test_a_trace_shows_the_mapped_subject_and_who_may_not_have_the_message() -> None:
    async with Server(config=load_text(CONFIG).options) as server:
        a = await nats.connect(server.url, user="a", password="a")
        b = await nats.connect(server.url, user="b", password="b")
        await b.subscribe("*")
        await b.flush()
        came, mapped, denied = await traced(a, "old")
        assert (came["type"], came["subj"]) == ("in", "old")
        assert (mapped["type"], mapped["to"]) == ("sm", "new")
        assert denied["error"] == "Not delivered because subscription denies this subject"
        for client in (a, b):
            await client.close()


async def test_a_trace_shows_a_publisher_without_echo() -> None:
    async with Server() as server:
        client = await nats.connect(server.url)
        deaf = await nats.connect(server.url, no_echo=True)
        traces = await client.subscribe("traces")
        await client.flush()
        await deaf.subscribe("x")
        await deaf.publish("x", b"", headers=TRACED)
        events = json.loads((await traces.next_msg(30)).data)["events"]
        assert events[1]["error"] == "Not delivered because of no echo"
        for one in (client, deaf):
            await one.close()


def test_a_trace_goes_only_where_its_publisher_may_publish() -> None:
    with Server(config=load_text(CONFIG).options) as server, plain_client(server.port) as client:
        client.info()
        client.send('CONNECT {"user":"a","pass":"a","headers":true,"verbose":false}\r\nSUB x 1\r\n')
        client.send("HPUB x 37 37\r\nNATS/1.0\r\nNats-Trace-Dest: secret\r\n\r\n\r\n")
        assert client.ping() == ["-ERR 'Permissions Violation for Publish to \"secret\"'"]
