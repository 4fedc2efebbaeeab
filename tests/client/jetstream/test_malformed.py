"""Answers of JetStream that are invalid: an error of ours that says so, never a hang."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

import slipstream
from slipstream.client.events import ErrorEvent, Event
from slipstream.client.jetstream import JetStream
from slipstream.client.jetstream.consumer import PullConsumer
from slipstream.client.jetstream.errors import JetStreamError
from slipstream.client.kv import KeyValue
from slipstream.client.object_store import ObjectStore
from slipstream.model.infos import ConsumerInfo
from tests.client.scripted_server import Asked, ScriptedServer, frame
from tests.client.waiting import LoopClock

pytestmark = pytest.mark.usefixtures("nothing_reaches_the_loop")

STREAM = {
    "type": "io.nats.jetstream.api.v1.stream_info_response",
    "config": {"name": "S", "subjects": ["s.>"], "allow_direct": True},
    "state": {"messages": 5, "first_seq": 1, "last_seq": 5},
    "created": "2026-01-02T03:04:05Z",
}
CONSUMER = {
    "type": "io.nats.jetstream.api.v1.consumer_info_response",
    "stream_name": "S",
    "name": "c",
    "config": {"durable_name": "c", "ack_policy": "explicit"},
}
ACK = "$JS.ACK.S.c.1.1.1.1790000000000000000.0"

NO_JSON = {
    "nothing": b"",
    "no JSON": b"{nonsense",
    "no text": b"\xff\xfe\xfd",
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "a text": b'"stored"',
    "an error that is a number": b'{"error":7}',
    "an error that is a list": b'{"error":["no"]}',
    "an error with a code that is invalid": b'{"error":{"code":"many","err_code":[]}}',
}
NO_INFO = {
    **NO_JSON,
    "an empty object": b"{}",
    "a config that is a number": b'{"config":7,"state":{}}',
    "a state that is a list": b'{"config":{},"state":[]}',
    "a time that is invalid": b'{"config":{},"state":{},"created":"yesterday"}',
    "a time that is a number": b'{"config":{},"state":{},"created":7}',
    "a duration that is invalid": b'{"config":{"max_age":"long","ack_wait":"long"},"state":{}}',
}
NO_ACK = {
    **NO_JSON,
    "an empty object": b"{}",
    "no stream": b'{"seq":5}',
    "a sequence that is a text": b'{"stream":"S","seq":"five"}',
    "a negative sequence beyond all bounds": b'{"stream":"S","seq":-99999999999999999999}',
    "a stream that is a number": b'{"stream":5,"seq":5}',
}


def direct(**changes: str | None) -> bytes:
    """The header block of a direct get's answer; with a field of another value, or without it."""
    fields: dict[str, str | None] = {
        "Nats-Stream": "S",
        "Nats-Subject": "s.a",
        "Nats-Sequence": "1",
        "Nats-Time-Stamp": "2026-01-02T03:04:05Z",
        "Nats-Num-Pending": "0",
        "Nats-Last-Sequence": "0",
    }
    fields |= {"Nats-" + name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


NO_DIRECT = {
    "no headers": b"",
    "headers that are invalid": b"junk\r\n\r\n",
    "no fields": b"NATS/1.0\r\n\r\n",
    "cut short": direct()[:50],
    "cut inside of a name": direct()[:30],
    "no subject": direct(Subject=None),
    "no sequence": direct(Sequence=None),
    "a sequence that is invalid": direct(Sequence="first"),
    "a previous sequence that is invalid": direct(Last_Sequence="first"),
    "no time": direct(Time_Stamp=None),
    "a time that is invalid": direct(Time_Stamp="yesterday"),
    "a status that is invalid": b"NATS/1.0 nine\r\n\r\n",
    "a status unknown to us": b"NATS/1.0 799 What\r\n\r\n",
    "a status beyond all bounds": b"NATS/1.0 " + b"4" * 30 + b"\r\n\r\n",
    "a status with bytes that are no text": b"NATS/1.0 408 \xff\xfe\r\n\r\n",
    "an end with numbers that are invalid": (
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: x\r\nNats-Last-Sequence: y\r\n\r\n"
    ),
}
NO_STATUS = {
    "headers that are invalid": b"junk junk junk junk\r\n\r\n",
    "no status": b"NATS/1.0\r\n\r\n",
    "a status that is invalid": b"NATS/1.0 nine lives\r\n\r\n",
    "a status unknown to us": b"NATS/1.0 799 What\r\n\r\n",
    "a status beyond all bounds": b"NATS/1.0 " + b"4" * 5000 + b"\r\n\r\n",
    "bytes that are no text": b"NATS/1.0 409 \xff\xfe\r\n\r\n",
    "pending numbers that are invalid": (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: x\r\n"
        b"Nats-Pending-Bytes: -1\r\n\r\n"
    ),
    "an empty conflict": b"NATS/1.0 409\r\n\r\n",
    "a version of the future": b"NATS/9.9 408 Request Timeout\r\n\r\n",
}
NO_REPLY = {
    "none": "",
    "of someone else": "elsewhere",
    "too short": "$JS.ACK.S.c.1",
    "nothing behind the prefix": "$JS.ACK.",
    "between the two versions": "$JS.ACK.S.c.1.1.1.1.0.more",
    "numbers that are invalid": "$JS.ACK.S.c.a.b.c.d.e",
    "numbers beyond all bounds": "$JS.ACK.S.c." + ".".join(["9" * 40] * 5),
    "empty tokens": "$JS.ACK.......",
}


class Bench:
    """A client before a server that answers one endpoint wrongly, and what it reported."""

    def __init__(self, endpoint: str, answer: Callable[[Asked], bytes]) -> None:
        self._endpoint = endpoint
        self._answer = answer
        self.events: list[Event] = []
        self.server = ScriptedServer(self._script)

    def _script(self, asked: Asked) -> bytes | None:
        if asked.subject.startswith(self._endpoint):
            return self._answer(asked)
        if asked.subject.startswith("$JS.API.STREAM.INFO."):
            return asked.answer(msgspec.json.encode(STREAM))
        if asked.subject.startswith(("$JS.API.CONSUMER.INFO.", "$JS.API.CONSUMER.CREATE.")):
            return asked.answer(msgspec.json.encode(CONSUMER))
        return None

    async def __aenter__(self) -> "Bench":
        await self.server.__aenter__()
        self.nc = await slipstream.connect(self.server.url, on_event=self.events.append)
        self.js: JetStream = self.nc.jetstream(timeout=30, publish_ack_timeout=30)
        self.consumer = PullConsumer(self.js, ConsumerInfo.from_wire(CONSUMER))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.nc.close()
        await self.server.__aexit__(None, None, None)

    async def refuses(self, work: Awaitable[Any]) -> Exception:
        """`work` ends in an error of ours, and leaves no subscription but the inboxes."""
        async with asyncio.timeout(300):
            with pytest.raises(slipstream.Error) as caught:
                await work
        assert not [
            r for r in self.nc.subscriptions.routes.values() if not r.subject.endswith(".*")
        ]
        assert self.server.accepted == 1
        return caught.value


@pytest.mark.parametrize("name", NO_ACK)
async def test_an_acknowledgement_that_is_invalid_is_an_error_of_the_publish(name: str) -> None:
    async with Bench("s.", lambda asked: asked.answer(NO_ACK[name])) as bench:
        error = await bench.refuses(bench.js.publish("s.a", b"x"))
        assert "s.a" in str(error)
        await bench.refuses(await bench.js.publish_async("s.a", b"x"))
        await bench.js.publish_async_complete(1)


async def consume_list(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


@pytest.mark.parametrize("name", NO_INFO)
async def test_an_answer_of_the_api_that_is_invalid_is_an_error_of_the_call(name: str) -> None:
    async with Bench("$JS.API.", lambda asked: asked.answer(NO_INFO[name])) as bench:
        js = bench.js
        asking = [js.stream("S"), js.create_stream(name="S")]
        if b'"state":[]' not in NO_INFO[name]:  # a consumer has none
            asking += [js.consumer("S", "c"), js.create_consumer("S", durable_name="c")]
        for work in asking:
            error = await bench.refuses(work)
            assert isinstance(error, JetStreamError)


@pytest.mark.parametrize("name", NO_JSON)
async def test_a_list_that_is_invalid_is_an_error_of_the_call(name: str) -> None:
    async with Bench("$JS.API.", lambda asked: asked.answer(NO_JSON[name])) as bench:
        await bench.refuses(bench.js.account_info())
        await bench.refuses(consume_list(bench.js.stream_names()))
        await bench.refuses(consume_list(bench.js.streams()))


@pytest.mark.parametrize("entries", ["7", '"S"', "{}", "[7]", '[{"config":7}]'])
async def test_entries_that_are_invalid_are_an_error_of_the_call(entries: str) -> None:
    said = b'{"total":1,"streams":%b}' % entries.encode()
    async with Bench("$JS.API.", lambda asked: asked.answer(said)) as bench:
        with contextlib.suppress(JetStreamError):
            assert await consume_list(bench.js.streams()) == []


@pytest.mark.parametrize("name", NO_DIRECT)
async def test_a_direct_get_that_is_invalid_is_an_error_of_the_call(
    name: str, clock: LoopClock
) -> None:
    block = NO_DIRECT[name]

    def answer(asked: Asked) -> bytes:
        return asked.answer(b"" if b"204" in block else b"data", block)

    async with Bench("$JS.API.DIRECT.GET.", answer) as bench:
        stream = await bench.js.stream("S")
        info = stream.cached_info
        kv = KeyValue(bench.js, info)
        store = ObjectStore(bench.js, info)
        for work in (
            lambda: kv.get("a"),
            lambda: store.info("a"),
            lambda: stream.get_message(1),
            lambda: consume_list(stream.get_batch(sequence=1, count=2)),
            lambda: consume_list(stream.last_for(["s.a"])),
            lambda: stream.scan(columns=("data", "timestamp")).to_table(),
        ):
            with contextlib.suppress(slipstream.Error):
                await clock.run_out(work(), 31)  # what it did not need may be wrong
        assert not [
            r for r in bench.nc.subscriptions.routes.values() if not r.subject.endswith(".*")
        ]


@pytest.mark.parametrize("name", NO_STATUS)
async def test_a_status_that_is_invalid_ends_a_fetch_and_not_consuming(name: str) -> None:
    asked_for = 0

    def answer(asked: Asked) -> bytes | None:
        nonlocal asked_for
        asked_for += 1
        if asked_for == 1:
            return frame(asked.reply, asked.sid, b"", block=NO_STATUS[name])
        return frame("s.a", asked.sid, b"whole", reply=ACK)

    async with Bench("$JS.API.CONSUMER.MSG.NEXT.", answer) as bench:
        async with asyncio.timeout(5):
            with contextlib.suppress(slipstream.Error):
                assert not await bench.consumer.fetch(1, timeout=4)
            asked_for = 0
            async with bench.consumer.messages(
                max_messages=1, expires=1.0, heartbeat=0.1
            ) as messages:
                message = await messages.next(timeout=4)
                assert message is not None
                assert message.data == b"whole"


@pytest.mark.parametrize("name", NO_REPLY)
async def test_an_acknowledgement_subject_that_is_invalid_stops_nobody(name: str) -> None:
    asked_for = 0

    def answer(asked: Asked) -> bytes | None:
        nonlocal asked_for
        asked_for += 1
        reply = NO_REPLY[name] if asked_for == 1 else ACK
        return frame("s.a", asked.sid, b"%d" % asked_for, reply=reply)

    async with Bench("$JS.API.CONSUMER.MSG.NEXT.", answer) as bench:
        ordered = bench.js.ordered_consumer("S")
        for source in (bench.consumer, ordered):
            asked_for = 0
            async with source.messages(max_messages=1, expires=1.0, heartbeat=0.1) as messages:
                while True:
                    message = await messages.next(timeout=4)
                    assert message is not None
                    assert repr(message)
                    with contextlib.suppress(slipstream.Error):
                        assert message.metadata.stream in ("S", "")
                    if message.reply == ACK:
                        break


@pytest.mark.parametrize("name", NO_JSON)
async def test_a_fast_batch_ends_in_an_error_at_an_answer_that_is_invalid(
    name: str, clock: LoopClock
) -> None:
    async with Bench("s.", lambda asked: asked.answer(NO_JSON[name])) as bench:

        async def publish() -> None:
            async with bench.js.fast_batch() as batch:
                await batch.add("s.a", b"1")

        await bench.refuses(clock.run_out(publish(), 31))


async def test_a_callback_that_raises_holds_no_publish_back() -> None:
    def answer(asked: Asked) -> bytes:
        return asked.answer(b'{"stream":"S","seq":1}')

    def refuse(message: Any, ack: Any) -> None:
        raise RuntimeError(message.subject)

    async with Bench("s.", answer) as bench:
        js = bench.nc.jetstream(on_publish_ack=refuse, max_ack_pending=1)
        for _ in range(3):
            future = await js.publish_async("s.a", b"x")
            assert (await future).sequence == 1
        await js.publish_async_complete(1)
    raised = [event.error for event in bench.events if isinstance(event, ErrorEvent)]
    assert [str(error) for error in raised] == ["s.a"] * 3
