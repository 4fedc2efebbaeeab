"""Consumers as their users hold them: what is common to pull and push, and the pull consumer.

consumer = await stream.create_consumer(durable_name="billing")
for message in await consumer.fetch(10, timeout=5):
    await message.ack()
"""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, overload

from slipstream.client.codecs import Kind
from slipstream.client.jetstream.delivery import Delivery
from slipstream.client.jetstream.errors import NotPullConsumerError, PinMismatchError
from slipstream.client.jetstream.message import JetStreamMessage
from slipstream.client.jetstream.messages import ConsumeContext, ErrorHandler, Handler, Messages
from slipstream.client.jetstream.pull import (
    BATCH_UNBOUNDED,
    EXPIRES_WITH_HEARTBEAT,
    HEARTBEAT_OF_FETCH,
    Fetch,
    GroupOptions,
    MessageBatch,
    Pin,
    Pull,
    PullOptions,
    PullSource,
    check_names,
    group_of,
)
from slipstream.client.value_types import Given
from slipstream.model.durations import to_seconds
from slipstream.model.header_names import NATS_PIN_ID
from slipstream.model.infos import ConsumerInfo, ConsumerPauseInfo

if TYPE_CHECKING:
    import pyarrow

    from slipstream.client.jetstream.context import JetStream
    from slipstream.client.jetstream.dead_letters import DeadLetter
    from slipstream.client.jetstream.publish import PubAck
    from slipstream.model.why import Explanation

FETCH_TIMEOUT = 30.0
SEQUENCE_EXPIRES = 60.0


class Consumer:
    """A consumer on the server: its info, and what can be done to it. See `PullConsumer`."""

    def __init__(self, js: "JetStream", info: ConsumerInfo) -> None:
        self._js = js
        self._info = info
        self._stream = info.stream_name
        self._name = info.name

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self._name

    @property
    def stream_name(self) -> str:
        """The name of the stream that it reads."""
        return self._stream

    @property
    def cached_info(self) -> ConsumerInfo:
        """The info as it was last seen; nothing is asked."""
        return self._info

    @property
    def who(self) -> str:
        """How errors name it."""
        return f"consumer {self._name!r} of stream {self._stream!r}"

    async def info(self) -> ConsumerInfo:
        """The info as it is now. Raises `ConsumerNotFoundError`."""
        self._info = await self._js.consumer_info(self._stream, self._name)
        return self._info

    async def why(self) -> "Explanation":
        """Why it delivers or does not: reasons with a code, a text and what to do, and the facts
        that they follow from. A Slipstream server says all; of another server, all that its infos
        tell. Raises `ConsumerNotFoundError`."""
        from slipstream.client.jetstream.why import explain_consumer

        return await explain_consumer(self._js, await self.info())

    async def delete(self) -> None:
        """Delete it. Raises `ConsumerNotFoundError`."""
        await self._js.delete_consumer(self._stream, self._name)

    async def pause(self, until: "datetime | timedelta | float") -> ConsumerPauseInfo:
        """Deliver nothing until a time, or for a while in seconds."""
        return await self._js.pause_consumer(self._stream, self._name, until)

    async def resume(self) -> ConsumerPauseInfo:
        """Deliver again."""
        return await self._js.resume_consumer(self._stream, self._name)

    async def reset(self, sequence: int = 0) -> ConsumerInfo:
        """Go back (or on) to the stream's `sequence`; 0: to the ack floor. Needs server 2.14."""
        self._info = await self._js.reset_consumer(self._stream, self._name, sequence)
        return self._info

    async def dead_letters(self) -> AsyncIterator["DeadLetter"]:
        """What it gave up and its `dead_letter` leads to, the oldest first. Raises `ConfigError` if
        that is not configured, `StreamNotFoundError` if no stream stores it."""
        from slipstream.client.jetstream.dead_letters import letters_of

        async for letter in letters_of(self._js, await self.info()):
            yield letter

    async def dead_letter(self, sequence: int) -> "DeadLetter":
        """The dead letter with this sequence in the stream where they go. Raises
        `MessageNotFoundError`, and what `dead_letters` raises."""
        from slipstream.client.jetstream.dead_letters import letter_of

        return await letter_of(self._js, await self.info(), sequence)

    async def resend(self, letter: "DeadLetter") -> "PubAck":
        """Publish a dead letter's message to its subject again, then remove the dead letter: at
        least once. A second attempt within the duplicate window stores no second message. Raises
        what `JetStream.publish` raises; the dead letter stays then."""
        from slipstream.client.jetstream.dead_letters import resend

        return await resend(self._js, letter)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stream!r}, {self._name!r})"


class PullConsumer(Consumer):
    """A consumer that sends what it is asked for."""

    def __init__(self, js: "JetStream", info: ConsumerInfo) -> None:
        super().__init__(js, info)
        if info.config.deliver_subject:
            raise NotPullConsumerError(
                f"{self.who} is a push consumer; get it with `push_consumer`, not `consumer`"
            )
        self._subject = f"{js.api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._pin = Pin()

    async def unpin(self, group: str) -> None:
        """Let another client of the priority group be the pinned one."""
        await self._js.unpin_consumer(self._stream, self._name, group)

    # -- one batch -----------------------------------------------------------------------------

    @overload
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        type: "Kind[Given] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        type: object,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch": ...
    async def fetch(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        max_bytes: int = 0,
        type: object = None,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch":
        """Up to `count` messages: returns when they are there, or after `timeout` seconds.

        Nothing within that time is an empty batch. `heartbeat` (by default 5 s, if the timeout is
        10 s or more; 0 for none) notices a silent server. Raises `ConsumeError` if trouble came
        before any message; if it came later, the batch has it in `error`.
        """
        seconds = to_seconds(timeout, "timeout")
        beat = HEARTBEAT_OF_FETCH if seconds >= EXPIRES_WITH_HEARTBEAT else 0.0
        return await self._fetch(
            count, seconds, group, type,
            max_bytes=max_bytes,
            heartbeat=beat if heartbeat is None else to_seconds(heartbeat, "heartbeat"),
        )  # fmt: skip

    @overload
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: "Kind[Given] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch": ...
    async def fetch_bytes(
        self,
        max_bytes: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object = None,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch":
        """As many messages as fit in `max_bytes`, counting subject, reply, headers and data."""
        return await self.fetch(
            BATCH_UNBOUNDED,
            timeout=timeout,
            heartbeat=heartbeat,
            max_bytes=max_bytes,
            type=type,
            **group,
        )

    @overload
    async def fetch_no_wait(
        self,
        count: int,
        *,
        max_bytes: int = 0,
        type: "Kind[Given] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "MessageBatch[Given]": ...
    @overload
    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: object, **group: Unpack[GroupOptions]
    ) -> "MessageBatch": ...
    async def fetch_no_wait(
        self, count: int, *, max_bytes: int = 0, type: object = None, **group: Unpack[GroupOptions]
    ) -> "MessageBatch":
        """Up to `count` of the messages that are there now; none is an empty batch."""
        return await self._fetch(
            count, self._js.timeout, group, type, max_bytes=max_bytes, no_wait=True
        )

    async def fetch_arrow(
        self,
        count: int,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        max_bytes: int = 0,
        no_wait: bool = False,
        columns: "Iterable[str] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "pyarrow.RecordBatch":
        """Up to `count` messages as one record batch; fewer, or none, after `timeout` seconds.

        Acknowledge with `ack_batch`: the column `reply` says where. Needs pyarrow. Not for groups
        that are pinned to a client, whose pin comes with each message: use `fetch`.
        """
        from slipstream.client.arrow import batches

        check_names("fetch_arrow", group)
        self.check_group(group.get("group", ""))
        if self._info.config.priority_policy == "pinned_client":
            raise ValueError(
                f"{self.who} is pinned to one client: use `fetch`, which keeps the pin"
            )
        return await batches.fetch_arrow(
            self._js.connection,
            subject=self._subject,
            who=self.who,
            count=count,
            timeout=to_seconds(timeout, "timeout"),
            max_bytes=max_bytes,
            no_wait=no_wait,
            columns=batches.FETCH_COLUMNS if columns is None else columns,
            group=group_of(group),
        )

    async def ack_batch(self, batch: "pyarrow.RecordBatch") -> None:
        """Acknowledge the messages of a batch of `fetch_arrow`, or of the rows left of one."""
        from slipstream.client.arrow import batches

        await batches.ack_batch(self._js.connection, batch, self._info.config.ack_policy)

    @overload
    async def next(
        self,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: "Kind[Given] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "JetStreamMessage[Given] | None": ...
    @overload
    async def next(
        self,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object,
        **group: Unpack[GroupOptions],
    ) -> "JetStreamMessage | None": ...
    async def next(
        self,
        *,
        timeout: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta | None" = None,
        type: object = None,
        **group: Unpack[GroupOptions],
    ) -> "JetStreamMessage | None":
        """The next message; None if there is none within `timeout` seconds."""
        found = await self.fetch(1, timeout=timeout, heartbeat=heartbeat, type=type, **group)
        return found[0] if found else None

    async def _fetch(
        self,
        count: int,
        timeout: float,
        group: GroupOptions,
        kind: Any,
        *,
        max_bytes: int = 0,
        heartbeat: float = 0.0,
        no_wait: bool = False,
    ) -> MessageBatch:
        check_names("fetch", group)
        if count < 1 or timeout <= 0:
            raise ValueError(f"fetch {count} messages in {timeout} s: both are to be positive")
        if heartbeat < 0 or heartbeat > timeout / 2:
            raise ValueError(f"heartbeat is at most half of the timeout ({timeout} s)")
        self.check_group(group.get("group", ""))
        deadline = self._js.connection.loop.time() + timeout
        while True:
            sent = self._pin.id
            fetch = Fetch(
                self._js.connection,
                subject=self._subject,
                who=self.who,
                context=self._js,
                kind=kind,
                count=count,
                timeout=max(deadline - self._js.connection.loop.time(), 0.001),
                max_bytes=max_bytes,
                heartbeat=heartbeat,
                no_wait=no_wait,
                group=group_of(group),
                pin_id=sent,
            )
            try:
                found = await fetch.run()
            except PinMismatchError:
                if not sent:
                    raise
                self._pin.lose(sent)  # the pin has gone to another client: wait in line for it
                continue
            if group and found:
                self._pin.id = found[-1].header(NATS_PIN_ID) or ""
            return found

    def check_group(self, group: str) -> None:
        """A consumer with priority groups needs one, any other none; raises ValueError."""
        groups = self._info.config.priority_groups
        if groups and not group:
            raise ValueError(f"{self.who} has priority groups: give group={groups[0]!r}")
        if group and not groups:
            raise ValueError(f"{self.who} has no priority groups: leave group={group!r} out")

    # -- without end ---------------------------------------------------------------------------

    @overload
    def messages(
        self,
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages[Given]": ...
    @overload
    def messages(
        self,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages": ...
    def messages(
        self,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        raise_on_missing_heartbeat: bool = False,
        **options: Unpack[PullOptions],
    ) -> "Messages":
        """An endless iterator; see `PullOptions` for how much it pulls at a time.

        Trouble that is repaired (a lost request, a missed heartbeat, a new leader) goes to
        `on_error`, or to the log. What cannot be repaired is raised by the iteration:
        `ConsumerDeletedError`, `BadPullRequestError`, `ConsumerTypeError`.
        """
        pull = Pull.of(options)
        self.check_group(pull.group.get("group", ""))
        delivery = Delivery(self._js.connection.loop, self._js, type)
        source = PullSource(
            self._js.connection,
            delivery,
            pull,
            subject=self._subject,
            who=self.who,
            on_error=on_error,
            exists=self.info,
            pin=self._pin,
        )
        source.raise_on_missing_heartbeat = raise_on_missing_heartbeat
        return Messages(delivery, source, self._info.config.ack_policy != "none")

    @overload
    def consume(
        self,
        handler: "Handler[Given]",
        *,
        type: "Kind[Given] | None" = None,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext": ...
    @overload
    def consume(
        self,
        handler: Handler,
        *,
        type: object,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext": ...
    def consume(
        self,
        handler: Handler,
        *,
        type: object = None,
        on_error: ErrorHandler | None = None,
        **options: Unpack[PullOptions],
    ) -> "ConsumeContext":
        """Call `handler` for every message from now on, one after the other; see `messages`."""
        return ConsumeContext(self.messages(type=type, on_error=on_error, **options), handler)

    @overload
    def batch(
        self,
        count: int,
        *,
        expires: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta" = 0.0,
        max_bytes: int = 0,
        type: "Kind[Given] | None" = None,
        **group: Unpack[GroupOptions],
    ) -> "Messages[Given]": ...
    @overload
    def batch(
        self,
        count: int,
        *,
        expires: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta" = 0.0,
        max_bytes: int = 0,
        type: object,
        **group: Unpack[GroupOptions],
    ) -> "Messages": ...
    def batch(
        self,
        count: int,
        *,
        expires: "float | timedelta" = FETCH_TIMEOUT,
        heartbeat: "float | timedelta" = 0.0,
        max_bytes: int = 0,
        type: object = None,
        **group: Unpack[GroupOptions],
    ) -> "Messages":
        """One request for `count` messages, as an iterator that gives each as it comes.

        Ends after `count` messages or `expires` seconds.
        """
        check_names("batch", group)
        self.check_group(group.get("group", ""))
        pull = Pull.once(
            count,
            expires=to_seconds(expires, "expires"),
            heartbeat=to_seconds(heartbeat, "heartbeat"),
            max_bytes=max_bytes,
            group=group,
        )
        delivery = Delivery(self._js.connection.loop, self._js, type)
        source = PullSource(
            self._js.connection,
            delivery,
            pull,
            subject=self._subject,
            who=self.who,
            once=True,
            pin=self._pin,
        )
        return Messages(delivery, source, self._info.config.ack_policy != "none")

    @overload
    def sequence(
        self, count: int, *, type: "Kind[Given] | None" = None, **group: Unpack[GroupOptions]
    ) -> "AsyncIterator[Messages[Given]]": ...
    @overload
    def sequence(
        self, count: int, *, type: object, **group: Unpack[GroupOptions]
    ) -> "AsyncIterator[Messages]": ...
    async def sequence(
        self, count: int, *, type: object = None, **group: Unpack[GroupOptions]
    ) -> "AsyncIterator[Messages]":
        """One batch of `count` after the other, without end; each lasts at most 60 s."""
        while True:
            async with self.batch(count, expires=SEQUENCE_EXPIRES, type=type, **group) as batch:
                yield batch
