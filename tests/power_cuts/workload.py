"""Clients that ask for all kinds of durable things at once, from a seed, and note the answers.

They go on until the server ends, which it does in the midst of everything: by kill -9, or by an
orderly stop. The next life of the server has new clients, and streams of its own beside those that
all lives share.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any

import slipstream
from slipstream.client.jetstream.message import JetStreamMessage
from tests.power_cuts.promises import Asked, Promises, Published, Removal, State

ACK_WAIT_SECONDS = 0.5
BUCKET = "kv"
BUCKET_STREAM = f"KV_{BUCKET}"
KEYS = [f"key-{n}" for n in range(8)]
DATA = [f"D{n}" for n in range(4)]  # written to, read, deleted from and purged
MANY = [f"M{n}" for n in range(20)]  # each gets a message in one turn
BATCHES = "A"  # atomic batches
WORK = "W"  # a work queue
BATCH_MESSAGES = 300
PATIENCE_SECONDS = 20.0  # for one answer, on a busy machine


class Clients:
    """The clients of one life of the server."""

    def __init__(self, url: str, promises: Promises, seed: int, life: int) -> None:
        self._url = url
        self._promises = promises
        self._random = Random(f"{seed}/{life}")
        self._life = life
        self._number = 0
        self._connections: list[slipstream.Connection] = []

    async def run(self, ended: Coroutine[Any, Any, None]) -> None:
        """Work until `ended` is done."""
        for _ in range(4):
            self._connections.append(await slipstream.connect(self._url, reconnect=False))
        working = asyncio.gather(
            self._until_lost(self._set_up_and_share()),
            *(self._until_lost(self._own(n)) for n in range(2)),
            self._until_lost(self._put_keys()),
        )
        ending, asking = asyncio.create_task(ended), asyncio.create_task(_finish(working))
        await asyncio.wait([ending, asking], return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        await asyncio.gather(ending, asking, return_exceptions=True)
        for connection in self._connections:
            await connection.close()

    async def _until_lost(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (slipstream.Error, OSError) as error:
            self._promises.failures.append(f"{type(error).__name__}: {error}")

    def _js(self) -> "slipstream.JetStream":
        connection = self._random.choice(self._connections)
        return connection.jetstream(timeout=PATIENCE_SECONDS)

    # -- messages ----------------------------------------------------------------------------------

    def _message(self, stream: str, size: int, unit: int = 0) -> Published:
        self._number += 1
        name = f"{self._life}.{self._number}|".encode()
        body = name + self._random.randbytes(size // 2).hex().encode()
        subject = f"{stream}.{self._random.randrange(5)}"
        message = Published(stream=stream, subject=subject, body=body, unit=unit)
        self._promises.messages[stream].append(message)
        return message

    async def _publish(self, stream: str, size: int) -> None:
        message = self._message(stream, size)
        ack = await self._js().publish(message.subject, message.body)
        message.succeeded()
        message.sequence = ack.sequence

    async def _publish_all(self, streams: Iterable[str], size: int) -> None:
        await asyncio.gather(*(self._publish(name, size) for name in streams))

    async def _batch(self) -> None:
        """An atomic batch, which may be larger than a segment."""
        self._number += 1
        unit = self._life * 1_000_000 + self._number
        count = self._random.choice((2, 5, 20, 80))
        messages = [
            self._message(BATCHES, self._random.randint(10, 1500), unit) for _ in range(count)
        ]
        batch = self._js().atomic_batch()
        for message in messages[:-1]:
            await batch.add(message.subject, message.body)
        ack = await batch.commit(messages[-1].subject, messages[-1].body)
        for n, message in enumerate(messages):
            message.succeeded()
            message.sequence = ack.sequence - count + 1 + n

    # -- what all lives share ----------------------------------------------------------------------

    async def _set_up_and_share(self) -> None:
        await self._set_up()
        await asyncio.gather(
            *(self._write() for _ in range(3)),
            self._remove(),
            self._read(),
            *(self._consume(DATA[0], f"c{n}") for n in range(2)),
            self._consume(WORK, "w"),
        )

    async def _set_up(self) -> None:
        more: dict[str, dict[str, Any]] = {
            DATA[1]: {"compression": "s2"},
            BATCHES: {"allow_atomic": True},
            WORK: {"retention": "workqueue"},
        }
        self._promises.work_queues.add(WORK)
        for name in (*DATA, *MANY, BATCHES, WORK):
            if any(state.answered for state in self._promises.streams[name]):
                continue
            await self._make_stream(name, "shared", **more.get(name, {}))
        js = self._js()
        for stream, name in ((DATA[0], "c0"), (DATA[0], "c1"), (WORK, "w")):
            states = self._promises.consumers[stream, name]
            self._promises.acks[stream, name]
            state = State(value="shared")
            states.append(state)
            await js.create_or_update_consumer(
                stream, durable_name=name, description="shared",
                ack_wait=ACK_WAIT_SECONDS, max_ack_pending=1000,
            )  # fmt: skip
            state.succeeded()

    async def _make_stream(self, name: str, description: str, **config: Any) -> None:
        state = State(value=description)
        self._promises.streams[name].append(state)
        await self._js().create_or_update_stream(
            name=name, subjects=[f"{name}.*"], description=description, allow_direct=True, **config
        )
        state.succeeded()

    async def _write(self) -> None:
        random = self._random
        while True:
            kind = random.random()
            if kind < 0.5:
                await self._publish(random.choice(DATA), random.choice((20, 200, 2000)))
            elif kind < 0.65:
                await self._publish_all(random.sample(MANY, random.randint(2, 20)), 300)
            elif kind < 0.7:
                await self._publish_all([random.choice(DATA)] * BATCH_MESSAGES, 300)
            elif kind < 0.85:
                await self._publish_all([random.choice(DATA)] * 20, 100)
            elif kind < 0.95:
                await self._publish_all([WORK] * 10, 200)
            else:
                await self._batch()

    def _known(self, streams: Iterable[str]) -> list[Published]:
        """Messages whose sequence is known and that nobody has asked to remove one by one."""
        stream = self._random.choice(list(streams))
        deleted = self._promises.deletions[stream]
        messages = self._promises.messages[stream][-600:]
        return [one for one in messages if one.sequence and one.sequence not in deleted]

    async def _remove(self) -> None:
        """Most of two streams goes, one by one, so that their segments are compacted."""
        random = self._random
        while True:
            known = self._known(DATA[:2])
            if not known:
                await asyncio.sleep(0.01)
            elif random.random() < 0.03:
                await self._purge(random.choice(known))
            else:
                some = random.sample(known, min(len(known), random.randint(1, 16)))
                await asyncio.gather(*(self._delete(one) for one in some))

    async def _delete(self, message: Published) -> None:
        stream, sequence = message.stream, message.sequence
        if sequence in self._promises.deletions[stream]:
            return
        removal = Removal(sequence=sequence)
        self._promises.deletions[stream][sequence] = removal
        secure = self._random.random() < 0.7
        try:
            await self._js().delete_message(stream, sequence, secure=secure)
        except slipstream.client.jetstream.errors.ApiError:
            return  # a purge was first: it says that the message is gone
        removal.succeeded()

    async def _purge(self, message: Published) -> None:
        kind = self._random.choice(("subject", "below"))
        asked = {"filter": message.subject} if kind == "subject" else {"sequence": message.sequence}
        removal = Removal(
            subject=message.subject if kind == "subject" else "",
            below=message.sequence if kind == "below" else 0,
        )
        self._promises.removals[message.stream].append(removal)
        await self._js().purge_stream(message.stream, **asked)
        removal.succeeded()

    async def _read(self) -> None:
        """Direct gets, also of messages that are on their way."""
        js = self._js()
        while True:
            stream = self._random.choice([*DATA, *MANY])
            sequence = max(
                (one.sequence for one in self._promises.messages[stream][-50:]), default=0
            )
            handle = js.stream_handle(stream)
            try:
                found = await handle.get_message(
                    max(1, sequence + self._random.randint(-3, 2)), direct=True
                )
            except slipstream.client.jetstream.errors.MessageNotFoundError:
                await asyncio.sleep(0)
                continue
            self._was_read(stream, bytes(found.data), found.sequence)

    def _was_read(self, stream: str, body: bytes, sequence: int) -> None:
        for message in reversed(self._promises.messages[stream]):
            if message.body == body:
                message.was_read()
                message.sequence = message.sequence or sequence
                return
        self._promises.failures.append(f"violation: {stream} gave {body[:24]!r}, never published")

    async def _consume(self, stream: str, name: str) -> None:
        """Fetch and acknowledge in any order, mostly with an answer, and leave some out."""
        consumer = await self._js().consumer(stream, name)
        while True:
            batch = list(await consumer.fetch(self._random.randint(1, 40), timeout=1))
            for message in batch:
                self._was_read(stream, bytes(message.data), message.sequence)
            self._random.shuffle(batch)
            acks = self._promises.acks[stream, name]
            await asyncio.gather(
                *(self._ack(acks, one) for one in batch if self._random.random() < 0.9)
            )

    async def _ack(self, acks: dict[bytes, Asked], message: JetStreamMessage) -> None:
        body = bytes(message.data)
        asked = acks.setdefault(body, Asked())
        if self._random.random() < 0.3:
            await message.ack()
            return
        await message.ack_sync(PATIENCE_SECONDS)
        if not asked.answered:
            asked.succeeded()

    # -- what one client has for itself ------------------------------------------------------------

    async def _own(self, n: int) -> None:
        """Streams and consumers come, change and go, one step after the other."""
        random = self._random
        version = 0
        while True:
            version += 1
            name = f"L{self._life}-{n}-{random.randrange(3)}"
            states = self._promises.streams[name]
            exists = bool(states) and states[-1].value is not None
            if not exists or random.random() < 0.3:
                await self._make_stream(name, f"v{version}")
            elif random.random() < 0.3:
                await self._delete_stream(name)
            elif random.random() < 0.3:
                await self._publish_all([name] * random.randint(1, 30), 400)
            else:
                await self._change_consumer(name, f"{random.randrange(3)}", version)

    async def _delete_stream(self, name: str) -> None:
        removal, state = Removal(), State(value=None)
        self._promises.removals[name].append(removal)
        self._promises.streams[name].append(state)
        gone = []
        for (stream, _), states in self._promises.consumers.items():
            if stream == name and states[-1].value is not None:
                states.append(State(sent=state.sent, value=None))
                gone.append(states[-1])
        await self._js().delete_stream(name)
        for asked in (removal, state, *gone):
            asked.succeeded()

    async def _change_consumer(self, stream: str, name: str, version: int) -> None:
        states = self._promises.consumers[stream, name]
        js = self._js()
        if states and states[-1].value is not None and self._random.random() < 0.4:
            state = State(value=None)
            states.append(state)
            await js.delete_consumer(stream, name)
        else:
            state = State(value=f"v{version}")
            states.append(state)
            await js.create_or_update_consumer(stream, durable_name=name, description=f"v{version}")
        state.succeeded()

    async def _put_keys(self) -> None:
        js = self._js()
        made = State(value="keys")
        self._promises.streams[BUCKET_STREAM].append(made)
        bucket = await js.create_or_update_key_value(bucket=BUCKET, description="keys", history=2)
        made.succeeded()
        while True:
            key = self._random.choice(KEYS)
            self._number += 1
            gone = self._random.random() < 0.1
            state = State(value=None if gone else f"{self._life}.{self._number}")
            self._promises.keys[key].append(state)
            if gone:
                await bucket.delete(key)
            else:
                await bucket.put(key, str(state.value))
            state.succeeded()
            await asyncio.sleep(0.002)


async def _finish(working: "asyncio.Future[list[None]]") -> None:
    await working
