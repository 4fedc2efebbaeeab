"""A stream as its users hold it.

stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
consumer = await stream.create_consumer(durable_name="billing")
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from slipstream.client.jetstream.api import check_subject
from slipstream.client.jetstream.consumer import PullConsumer
from slipstream.client.jetstream.ordered import OrderedConsumer, OrderedConsumerConfig
from slipstream.client.jetstream.push import PushConsumer
from slipstream.client.jetstream.stored import StoredMessage, get, get_batch, last_for
from slipstream.model.configurations import ConsumerConfig, StreamConfig
from slipstream.model.infos import ConsumerInfo, ConsumerPauseInfo, StreamInfo
from slipstream.model.times import datetime_text

if TYPE_CHECKING:
    from slipstream.client.arrow.keywords import ScanKeywords
    from slipstream.client.arrow.scan import Scan
    from slipstream.client.jetstream.context import JetStream
    from slipstream.client.jetstream.keywords import (
        ConsumerKeywords,
        OrderedConsumerKeywords,
        StreamKeywords,
    )


class Stream:
    """A stream on the server; `cached_info` is what was last seen of it."""

    def __init__(self, js: "JetStream", info: StreamInfo) -> None:
        self._js = js
        self._info = info
        self._name = info.config.name

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    @property
    def jetstream(self) -> "JetStream":
        """The context that it was got from."""
        return self._js

    @property
    def cached_info(self) -> StreamInfo:
        """The info as it was last seen; nothing is asked."""
        return self._info

    @property
    def config(self) -> StreamConfig:
        """The configuration as it was last seen."""
        return self._info.config

    async def info(
        self,
        *,
        refresh: bool = True,
        subjects_filter: str = "",
        deleted_details: bool = False,
    ) -> StreamInfo:
        """The info as it is now, or as it was last seen with ``refresh=False``.

        `subjects_filter` counts messages by subject, `deleted_details` lists missing sequences.
        """
        if refresh or subjects_filter or deleted_details:
            self._info = await self._js.stream_info(
                self._name, subjects_filter=subjects_filter, deleted_details=deleted_details
            )
        return self._info

    def subjects(self, filter: str = ">") -> AsyncIterator[tuple[str, int]]:
        """Each subject that matches `filter`, with the number of its messages, page by page."""
        return self._js.stream_subjects(self._name, filter)

    async def update(
        self, config: StreamConfig | None = None, **fields: "Unpack[StreamKeywords]"
    ) -> StreamInfo:
        """Change the configuration: some fields of the current one, or another one as a whole."""
        base = (await self.info()).config if config is None else config
        fields.setdefault("name", self._name)
        updated = await self._js.update_stream(base, **fields)
        self._info = updated.cached_info
        return self._info

    async def delete(self) -> None:
        """Delete the stream with all its messages and consumers."""
        await self._js.delete_stream(self._name)

    async def purge(self, *, filter: str = "", sequence: int = 0, keep: int = 0) -> int:
        """Remove messages; how many there were.

        All of them, or those on subjects that match `filter`, those below `sequence`, or all but
        the newest `keep`.
        """
        return await self._js.purge_stream(self._name, filter=filter, sequence=sequence, keep=keep)

    # -- messages ------------------------------------------------------------------------------

    async def get_message(
        self, sequence: int, *, direct: bool | None = None, headers: bool = True
    ) -> StoredMessage:
        """The message of a sequence. Raises `MessageNotFoundError`.

        `direct` asks the stream itself (any replica or mirror may answer); by default it does so
        where the stream allows it. ``headers=False`` has the server leave them out; a direct
        answer then has the payload alone, with neither subject, sequence nor time.
        """
        return await self._get({"seq": sequence}, direct, headers)

    async def get_last_message(
        self, subject: str, *, direct: bool | None = None, headers: bool = True
    ) -> StoredMessage:
        """The last message on a subject, wildcards allowed. Raises `MessageNotFoundError`."""
        check_subject(subject)
        return await self._get({"last_by_subj": subject}, direct, headers)

    async def get_next(
        self,
        sequence: int = 1,
        subject: str = ">",
        *,
        direct: bool | None = None,
        headers: bool = True,
    ) -> StoredMessage:
        """The first message on a subject from a sequence on. Raises `MessageNotFoundError`."""
        check_subject(subject)
        return await self._get({"seq": sequence, "next_by_subj": subject}, direct, headers)

    async def get_first(
        self, subject: str = ">", *, direct: bool | None = None, headers: bool = True
    ) -> StoredMessage:
        """The first message on a subject. Raises `MessageNotFoundError`."""
        return await self.get_next(1, subject, direct=direct, headers=headers)

    async def get_at(
        self, time: datetime, *, direct: bool | None = None, headers: bool = True
    ) -> StoredMessage:
        """The first message stored at or after a time. Raises `MessageNotFoundError`."""
        return await self._get({"start_time": datetime_text(time)}, direct, headers)

    async def _get(
        self, request: dict[str, Any], direct: bool | None, headers: bool
    ) -> StoredMessage:
        if not headers:
            request["no_hdr"] = True
        if direct is None:
            direct = self._info.config.allow_direct
        return await get(self._js.api, self._name, request, direct)

    def get_batch(
        self,
        count: int | None = None,
        *,
        sequence: int = 1,
        subject: str = "",
        start_time: datetime | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """Messages from a sequence or time on, up to `count` (None: all). Needs `allow_direct`."""
        request: dict[str, Any] = {"seq": sequence}
        if start_time is not None:
            request = {"start_time": datetime_text(start_time)}
        if subject:
            request["next_by_subj"] = subject
        return get_batch(self._js.api, self._name, request, count)

    def last_for(
        self,
        subjects: str | list[str],
        *,
        up_to_sequence: int = 0,
        up_to_time: datetime | None = None,
    ) -> AsyncIterator[StoredMessage]:
        """The last message of each subject that matches, in sequence order. Needs `allow_direct`.

        `up_to_sequence` or `up_to_time` shows the stream as it was then.
        """
        wanted = [subjects] if isinstance(subjects, str) else list(subjects)
        return last_for(self._js.api, self._name, wanted, up_to_sequence, up_to_time)

    def scan(
        self,
        start: "int | datetime" = 1,
        end: "int | datetime | None" = None,
        *,
        subjects: "str | list[str] | None" = None,
        **options: "Unpack[ScanKeywords]",
    ) -> "Scan":
        """The messages from `start` to `end` as an iterator of `pyarrow.RecordBatch`.

        Both ends are sequences (inclusive) or times (`end` exclusive); without `end` it is what is
        the last message when the scan begins. `options` are `columns`, `batch_rows` and
        `batch_bytes`. Needs pyarrow. Raises `StreamNotFoundError`.
        """
        from slipstream.client.arrow.scan import Scan

        return Scan(self._js, self._name, start=start, end=end, subjects=subjects, **options)

    async def delete_message(self, sequence: int) -> None:
        """Remove a message. Raises `MessageDeleteError` if there is none."""
        await self._js.delete_message(self._name, sequence)

    async def secure_delete_message(self, sequence: int) -> None:
        """Remove a message, overwriting its bytes. Raises `MessageDeleteError` if there is none."""
        await self._js.delete_message(self._name, sequence, secure=True)

    # -- consumers -----------------------------------------------------------------------------

    async def create_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PullConsumer:
        """Make a pull consumer from a `config`, from its fields, or from both.

        Succeeds if it exists with the same configuration, else raises `ConsumerExistsError`.
        """
        return await self._js.create_consumer(self._name, config, **fields)

    async def update_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PullConsumer:
        """Give a pull consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._js.update_consumer(self._name, config, **fields)

    async def create_or_update_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PullConsumer:
        """Update the pull consumer if it exists, else make it."""
        return await self._js.create_or_update_consumer(self._name, config, **fields)

    async def get_or_create_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PullConsumer:
        """The pull consumer as it is; made if there is none."""
        return await self._js.get_or_create_consumer(self._name, config, **fields)

    async def consumer(self, name: str) -> PullConsumer:
        """A pull consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return await self._js.consumer(self._name, name)

    async def create_push_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PushConsumer:
        """Make a push consumer; without a `deliver_subject` it sends to a new inbox."""
        return await self._js.create_push_consumer(self._name, config, **fields)

    async def update_push_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PushConsumer:
        """Give a push consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._js.update_push_consumer(self._name, config, **fields)

    async def create_or_update_push_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PushConsumer:
        """Update the push consumer if it exists, else make it."""
        return await self._js.create_or_update_push_consumer(self._name, config, **fields)

    async def get_or_create_push_consumer(
        self, config: ConsumerConfig | None = None, **fields: "Unpack[ConsumerKeywords]"
    ) -> PushConsumer:
        """The push consumer as it is; made if there is none."""
        return await self._js.get_or_create_push_consumer(self._name, config, **fields)

    async def push_consumer(self, name: str) -> PushConsumer:
        """A push consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return await self._js.push_consumer(self._name, name)

    def ordered_consumer(
        self,
        config: OrderedConsumerConfig | None = None,
        **fields: "Unpack[OrderedConsumerKeywords]",
    ) -> OrderedConsumer:
        """Read the stream in order, with nothing to acknowledge."""
        return self._js.ordered_consumer(self._name, config, **fields)

    async def consumer_info(self, name: str) -> ConsumerInfo:
        """A consumer's info, of either kind. Raises `ConsumerNotFoundError`."""
        return await self._js.consumer_info(self._name, name)

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer. Raises `ConsumerNotFoundError`."""
        await self._js.delete_consumer(self._name, name)

    async def pause_consumer(
        self, name: str, until: "datetime | timedelta | float"
    ) -> ConsumerPauseInfo:
        """Have a consumer deliver nothing until a time, or for a while in seconds."""
        return await self._js.pause_consumer(self._name, name, until)

    async def resume_consumer(self, name: str) -> ConsumerPauseInfo:
        """Have a consumer deliver again."""
        return await self._js.resume_consumer(self._name, name)

    async def unpin_consumer(self, name: str, group: str) -> None:
        """Let another client of a priority group be the pinned one."""
        await self._js.unpin_consumer(self._name, name, group)

    async def reset_consumer(self, name: str, sequence: int = 0) -> ConsumerInfo:
        """Have a consumer go to `sequence`; 0: back to its ack floor. Needs server 2.14."""
        return await self._js.reset_consumer(self._name, name, sequence)

    def consumer_names(self) -> AsyncIterator[str]:
        """Names of the stream's consumers."""
        return self._js.consumer_names(self._name)

    def consumers(self) -> AsyncIterator[ConsumerInfo]:
        """Infos of the stream's consumers."""
        return self._js.consumers(self._name)

    def __repr__(self) -> str:
        return f"Stream({self._name!r})"
