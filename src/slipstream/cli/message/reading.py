"""Reading a stream for `slipstream sub`: in order, by a durable consumer, or by direct gets."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter

from slipstream.cli.global_options import UsageError
from slipstream.cli.message.shower import Shower
from slipstream.cli.output import clock, note
from slipstream.cli.session import context_of, settings
from slipstream.client.connection import Connection
from slipstream.client.jetstream import OrderedConsumerConfig
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.errors import MessageNotFoundError
from slipstream.client.message import Message

AT_END_SECONDS = 0.5  # after so long a silence --terminate-at-end asks what is left
POLL_SECONDS = 0.5  # between two direct gets where nothing was left


@dataclass(slots=True)
class Reading:
    """What is read of a stream, from where on, and when that ends."""

    stream: str
    subjects: list[str]
    policy: str
    sequence: int
    since: datetime | None
    wait: float | None
    at_end: bool

    async def _name(self, js: JetStream) -> str:
        name = self.stream or await js.stream_name_by_subject(self.subjects[0])
        what = ", ".join(self.subjects) or "all its subjects"
        note(f"{clock()} Subscribing to Stream {name} on {what}")
        return name

    async def in_order(self, nc: Connection, shower: Shower) -> None:
        """By an ordered consumer, without acknowledgements."""
        js = context_of(nc, settings())
        name = await self._name(js)
        config = OrderedConsumerConfig(
            filter_subjects=self.subjects,
            deliver_policy=self.policy,  # type: ignore[arg-type]
            opt_start_seq=self.sequence,
            opt_start_time=self.since,
        )
        consumer = js.ordered_consumer(name, config)
        limit = AT_END_SECONDS if self.at_end else self.wait
        async with consumer.messages() as messages:
            while True:
                message = await messages.next(limit)
                if message is None:
                    if self.at_end and (await consumer.info()).num_pending:
                        continue
                    return
                meta = message.metadata
                if not shower.show(message, _origin(name, meta.stream_sequence)):
                    return
                if self.at_end and not meta.num_pending:
                    return

    async def by_durable(self, nc: Connection, durable: str, ack: bool, shower: Shower) -> None:
        """By a durable consumer of the stream, which goes on where it was."""
        from slipstream.cli.consumer.read import messages_of

        js = context_of(nc, settings())
        info = await js.consumer_info(self.stream, durable)
        note(f"{clock()} Reading Stream {self.stream} by consumer {durable}")
        if self.at_end and not info.num_pending:
            return
        async with aclosing(messages_of(js, info, self.wait)) as messages:
            async for message in messages:
                more = shower.show(message, _origin(self.stream, message.metadata.stream_sequence))
                if ack and info.config.ack_policy != "none":
                    await message.ack_sync()
                if not more or (self.at_end and not message.metadata.num_pending):
                    return

    async def by_direct_gets(self, nc: Connection, shower: Shower) -> None:
        """By direct gets in batches, without a consumer."""
        js = context_of(nc, settings())
        if len(self.subjects) > 1:
            raise UsageError("sub: --direct reads one subject, which may have wildcards")
        stream = await js.stream(await self._name(js))
        subject = self.subjects[0] if self.subjects else ""
        state = (await stream.info()).state
        after = {
            "last": state.last_seq,
            "new": state.last_seq + 1,
            "by_start_sequence": self.sequence,
        }
        sequence = after.get(self.policy, 1)
        found = stream.get_batch(sequence=sequence, subject=subject, start_time=self.since)
        if self.policy == "last_per_subject":
            found = stream.last_for(subject or ">")
            sequence = state.last_seq + 1
        idle_since = perf_counter()
        while True:
            try:
                async for one in found:
                    sequence = max(sequence, one.sequence + 1)
                    message = Message(one.subject, one.data, headers=one.headers)
                    idle_since = perf_counter()
                    if not shower.show(message, _origin(stream.name, one.sequence)):
                        return
            except MessageNotFoundError:
                pass
            idle = perf_counter() - idle_since
            if self.at_end or (self.wait is not None and idle > self.wait):
                return
            await asyncio.sleep(POLL_SECONDS)
            found = stream.get_batch(sequence=sequence, subject=subject)


def _origin(stream: str, sequence: int) -> str:
    return f"JetStream message: stream: {stream} seq {sequence} "
