"""Watching a store: what describes its objects as they are, None once, then every change."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

from slipstream.client.jetstream.model import OrderedConsumerConfig
from slipstream.client.jetstream.watcher import Watcher
from slipstream.client.object_store.errors import BadObjectError
from slipstream.client.object_store.info import ObjectInfo, read_info

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream


class ObjectWatch:
    """Infos as they come; made by `ObjectStore.watch`.

    None comes once, when all objects there were have been given (at once if there are none; never
    with `updates_only`). `stop` ends it.
    """

    def __init__(
        self,
        js: "JetStream",
        *,
        stream: str,
        bucket: str,
        include_history: bool,
        updates_only: bool,
        ignore_deletes: bool,
        heartbeat: float,
    ) -> None:
        if include_history and updates_only:
            raise BadObjectError("watch: give one of include_history and updates_only")
        self._ignore_deletes = ignore_deletes
        config = OrderedConsumerConfig(
            filter_subjects=[f"$O.{bucket}.M.>"],
            deliver_policy=(
                "all" if include_history else "new" if updates_only else "last_per_subject"
            ),
            idle_heartbeat=heartbeat,
            push=True,
        )
        self._watcher = Watcher(
            js, stream, config, signals_done=not updates_only, heartbeat=heartbeat
        )

    async def start(self) -> None:
        """Begin; done by `ObjectStore.watch`."""
        await self._watcher.start()

    async def next(self) -> ObjectInfo | None:
        """The next info; None once, after the initial values.

        Raises StopAsyncIteration once it is stopped.
        """
        while True:
            message = await self._watcher.next()
            if message is None:
                return None
            info = read_info(message.data, message.metadata.timestamp_ns)
            if not (info.deleted and self._ignore_deletes):
                return info

    async def stop(self) -> None:
        """End it. Whoever iterates is let go."""
        self._watcher.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ObjectInfo | None:
        return await self.next()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
