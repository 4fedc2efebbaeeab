"""Making, finding and removing consumers; the half of `JetStream` that is about them.

Everything here takes the stream's name, so that no stream handle is needed; `Stream` has the same
without it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from slipstream.client.jetstream.api import Api, check_echo
from slipstream.client.jetstream.consumer import PullConsumer
from slipstream.client.jetstream.consumer_config import ConsumerConfig, OrderedConsumerConfig
from slipstream.client.jetstream.document import time_to_wire, to_seconds
from slipstream.client.jetstream.errors import (
    ConsumerNotFoundError,
    NotPullConsumerError,
    NotPushConsumerError,
)
from slipstream.client.jetstream.info import ConsumerInfo, ConsumerPauseInfo
from slipstream.client.jetstream.names import check_consumer_name, check_stream_name, new_name
from slipstream.client.jetstream.ordered import OrderedConsumer
from slipstream.client.jetstream.push import PushConsumer

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

C = TypeVar("C")

# What an old server ignores without a word, and users would miss. Whether it knows `pause_until`
# shows only in what is new: an update leaves a pause as it is.
_ECHOED = ("filter_subjects", "priority_groups")
_ECHOED_IF_NEW = (*_ECHOED, "pause_until")


class ConsumerAdmin:
    """Consumers of the account's streams; mixed into `JetStream`."""

    api: Api

    # -- pull consumers ------------------------------------------------------------------------

    async def create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer:
        """Make a pull consumer from a `config`, from its fields, or from both.

        Succeeds if it exists with the same configuration, else raises `ConsumerExistsError`.
        """
        return await self._put_pull(stream, config, fields, "create")

    async def update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer:
        """Give a pull consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._put_pull(stream, config, fields, "update")

    async def create_or_update_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer:
        """Update the pull consumer if it exists, else make it."""
        return await self._put_pull(stream, config, fields, "")

    async def get_or_create_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PullConsumer:
        """The pull consumer as it is; made if there is none."""
        made = _config_of(config, fields)
        there = await _if_there(self.consumer, stream, made)
        return there or await self._put_pull(stream, made, {}, "create")

    async def _put_pull(
        self, stream: str, config: ConsumerConfig | None, fields: dict[str, Any], action: str
    ) -> PullConsumer:
        made = _config_of(config, fields)
        if made.deliver_subject:
            raise NotPullConsumerError(
                f"a consumer with a deliver_subject ({made.deliver_subject!r}) is a push consumer: "
                "use create_push_consumer and its like"
            )
        return PullConsumer(self._js, await self.create_consumer_raw(stream, made, action))

    async def consumer(self, stream: str, name: str) -> PullConsumer:
        """A pull consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return PullConsumer(self._js, await self.consumer_info(stream, name))

    # -- push consumers ------------------------------------------------------------------------

    async def create_push_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PushConsumer:
        """Make a push consumer; see `create_consumer`.

        Without a `deliver_subject` it sends to a new inbox, which is of use while it is ephemeral.
        """
        return await self._put_push(stream, config, fields, "create")

    async def update_push_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PushConsumer:
        """Give a push consumer another configuration. Raises `ConsumerNotFoundError`."""
        return await self._put_push(stream, config, fields, "update")

    async def create_or_update_push_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PushConsumer:
        """Update the push consumer if it exists, else make it."""
        return await self._put_push(stream, config, fields, "")

    async def get_or_create_push_consumer(
        self, stream: str, config: ConsumerConfig | None = None, **fields: Any
    ) -> PushConsumer:
        """The push consumer as it is; made if there is none."""
        made = _config_of(config, fields)
        there = await _if_there(self.push_consumer, stream, made)
        return there or await self._put_push(stream, made, {}, "create")

    async def _put_push(
        self, stream: str, config: ConsumerConfig | None, fields: dict[str, Any], action: str
    ) -> PushConsumer:
        made = _config_of(config, fields)
        if not made.deliver_subject:
            if made.durable_name:
                raise NotPushConsumerError(
                    f"push consumer {made.durable_name!r}: a durable one needs a deliver_subject"
                )
            made = made.replace(deliver_subject=self.api.connection.new_inbox())
        return PushConsumer(self._js, await self.create_consumer_raw(stream, made, action))

    async def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """A push consumer. Raises `ConsumerNotFoundError`, `ConsumerTypeError`."""
        return PushConsumer(self._js, await self.consumer_info(stream, name))

    def ordered_consumer(
        self, stream: str, config: OrderedConsumerConfig | None = None, **fields: Any
    ) -> OrderedConsumer:
        """Read a stream in order, with nothing to acknowledge. The server is not asked yet."""
        check_stream_name(stream)
        made = OrderedConsumerConfig() if config is None else config
        return OrderedConsumer(self._js, stream, made.replace(**fields) if fields else made)

    # -- all of them ---------------------------------------------------------------------------

    async def create_consumer_raw(
        self, stream: str, config: ConsumerConfig, action: str = "", *, pedantic: bool = False
    ) -> ConsumerInfo:
        """Ask for a consumer of either kind; `action` is "create", "update" or "" for both."""
        check_stream_name(stream)
        name = check_consumer_name(config.name or config.durable_name or new_name())
        asked = {**config.to_wire(), "name": name}
        endpoint = f"CONSUMER.CREATE.{stream}.{name}"
        if config.filter_subject and not config.filter_subjects:
            endpoint += f".{config.filter_subject}"
        body: dict[str, Any] = {"stream_name": stream, "config": asked}
        if action:
            body["action"] = action
        if pedantic:
            body["pedantic"] = True
        answer = await self.api.request(endpoint, body)
        info = ConsumerInfo.from_wire(answer)
        check_echo(asked, answer["config"], _ECHOED_IF_NEW if action == "create" else _ECHOED)
        return info

    async def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """A consumer's info. Raises `ConsumerNotFoundError`, `StreamNotFoundError`."""
        check_stream_name(stream)
        check_consumer_name(name)
        return ConsumerInfo.from_wire(await self.api.request(f"CONSUMER.INFO.{stream}.{name}"))

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises `ConsumerNotFoundError`."""
        check_stream_name(stream)
        check_consumer_name(name)
        await self.api.request(f"CONSUMER.DELETE.{stream}.{name}")

    async def pause_consumer(
        self, stream: str, name: str, until: "datetime | timedelta | float"
    ) -> ConsumerPauseInfo:
        """Have a consumer deliver nothing until a time, or for a while in seconds."""
        if not isinstance(until, datetime):
            until = datetime.now(UTC) + timedelta(seconds=to_seconds(until))
        return await self._pause(stream, name, {"pause_until": time_to_wire(until)})

    async def resume_consumer(self, stream: str, name: str) -> ConsumerPauseInfo:
        """Have a consumer deliver again."""
        return await self._pause(stream, name, None)

    async def _pause(
        self, stream: str, name: str, body: dict[str, Any] | None
    ) -> ConsumerPauseInfo:
        check_stream_name(stream)
        check_consumer_name(name)
        answer = await self.api.request(f"CONSUMER.PAUSE.{stream}.{name}", body)
        return ConsumerPauseInfo.from_wire(answer)

    async def unpin_consumer(self, stream: str, name: str, group: str) -> None:
        """Let another client of a priority group be the pinned one."""
        check_stream_name(stream)
        check_consumer_name(name)
        await self.api.request(f"CONSUMER.UNPIN.{stream}.{name}", {"group": group})

    async def reset_consumer(self, stream: str, name: str, sequence: int = 0) -> ConsumerInfo:
        """Have a consumer go to the stream's `sequence`; 0: back to its ack floor (server 2.14)."""
        # A server does not answer for a consumer that does not exist, so ask for it first.
        await self.consumer_info(stream, name)
        body = {"seq": sequence} if sequence else None
        return ConsumerInfo.from_wire(
            await self.api.request(f"CONSUMER.RESET.{stream}.{name}", body)
        )

    async def consumer_names(self, stream: str) -> AsyncIterator[str]:
        """Names of a stream's consumers."""
        check_stream_name(stream)
        async for name in self.api.pages(f"CONSUMER.NAMES.{stream}", "consumers"):
            yield name

    async def consumers(self, stream: str) -> AsyncIterator[ConsumerInfo]:
        """Infos of a stream's consumers."""
        check_stream_name(stream)
        async for raw in self.api.pages(f"CONSUMER.LIST.{stream}", "consumers"):
            yield ConsumerInfo.from_wire(raw)

    @property
    def _js(self) -> "JetStream":
        return self  # type: ignore[return-value]


async def _if_there(
    find: Callable[[str, str], Awaitable[C]], stream: str, config: ConsumerConfig
) -> C | None:
    """The consumer that `config` names; None if there is none, or it names none."""
    name = config.name or config.durable_name
    try:
        return await find(stream, name) if name else None
    except ConsumerNotFoundError:
        return None


def _config_of(config: ConsumerConfig | None, fields: dict[str, Any]) -> ConsumerConfig:
    if config is None:
        return ConsumerConfig(**fields)
    return config.replace(**fields) if fields else config
