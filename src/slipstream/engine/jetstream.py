"""JetStream of one account: its streams, what they may use, and starting them again."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.advisories import Advisories
from slipstream.engine.api.dispatch import ApiService
from slipstream.engine.api.explain import ExplainService
from slipstream.engine.direct_get import DirectGet
from slipstream.engine.errors import ApiError
from slipstream.engine.json_body import read_number
from slipstream.engine.message import Inbound
from slipstream.engine.options import API_LEVEL
from slipstream.engine.stream import Stream
from slipstream.engine.stream_config import StreamConfig, emit, load_config
from slipstream.engine.subject_claims import SubjectClaims
from slipstream.errors import StorageError
from slipstream.log.base import Log
from slipstream.log.memory_log import MemoryLog
from slipstream.log.stream_store import Store, StreamStore
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.account import Account
    from slipstream.engine.engine import Engine


class JetStream:
    """The streams of `account`. `store` is the server's store directory; None: all in memory."""

    def __init__(self, account: "Account", engine: "Engine", store: Store | None) -> None:
        self.account = account
        self.engine = engine
        self.store = store
        self.streams: dict[str, Stream] = {}
        self.claims = SubjectClaims()
        self._stored = {"file": 0, "memory": 0}  # kept up to date where it is limited
        self.set_limits(account.limits)
        self.api_total = 0
        self.api_errors = 0
        self.problems: list[str] = []  # for healthz
        self.advisories = Advisories(self)

    def set_limits(self, limits: Any) -> None:
        """What the account may use, from now on."""
        self.limits: Any = limits
        server = self.engine.options.jetstream_limits
        self.has_storage_limits = (
            limits.max_memory >= 0
            or limits.max_storage >= 0
            or server.max_memory >= 0
            or server.max_storage >= 0
        )
        for stream in self.streams.values():
            stream.configure(stream.config)

    @property
    def domain(self) -> str:
        """The JetStream domain; "" when there is none."""
        return str(self.engine.options.domain)

    def problem(self, text: str) -> None:
        """Something is wrong that an operator has to know; said once."""
        if text not in self.problems:
            self.problems.append(text)
            self.engine.on_problem(text)

    # -- what publish acknowledgements look like -------------------------------------------------

    def ack_head(self, stream: str) -> bytes:
        """The beginning of each acknowledgement, up to the sequence."""
        head = f'{{"stream":"{stream}",'
        if self.domain:
            head += f'"domain":"{self.domain}",'
        return (head + '"seq":').encode()

    def refusal(self, stream: str, error: ApiError) -> bytes:
        """The answer to a publish that was not stored."""
        answer: dict[str, Any] = {"error": error.body, "stream": stream}
        if self.domain:
            answer["domain"] = self.domain
        answer["seq"] = 0
        return msgspec.json.encode(answer)

    def refused_level(self, message: Inbound) -> bool:
        """Whether the message asks for a higher API level than this server has."""
        if message.body_start == message.header_start:
            return False
        asked = find(
            message.data, message.header_start, message.body_start, b"Nats-Required-Api-Level"
        )
        if asked is None:
            return False
        return not 0 <= read_number(asked) <= API_LEVEL

    # -- limits --------------------------------------------------------------------------------

    def used(self, storage: str) -> int:
        """Bytes stored in streams of that kind."""
        return sum(s.log.bytes for s in self.streams.values() if s.config.storage == storage)

    def reserved(self, storage: str, but: str = "") -> int:
        """Bytes promised to streams by their `max_bytes`."""
        configs = (s.config for s in self.streams.values() if s.name != but)
        return sum(max(c.max_bytes, 0) for c in configs if c.storage == storage)

    def check_storage(self, storage: str, size: int) -> None:
        """Whether `size` more bytes may be stored where that is limited. Raises `ApiError`."""
        used = self._stored[storage] + size
        account = self.limits.max_memory if storage == "memory" else self.limits.max_storage
        if 0 <= account < used:
            raise ApiError(10002)
        server = self.engine.options.jetstream_limits
        ceiling = server.max_memory if storage == "memory" else server.max_storage
        if 0 <= ceiling < self.engine.stored[storage] + size:
            raise ApiError(10023)

    def count_bytes(self, storage: str, change: int) -> None:
        """A stream stores so much more, or less."""
        self._stored[storage] += change
        self.engine.stored[storage] += change

    def check_account(self, config: StreamConfig, is_new: bool) -> None:
        """What the account may have. Raises `ApiError`."""
        limits = self.limits
        if is_new and 0 <= limits.max_streams <= len(self.streams):
            raise ApiError(10027)
        if limits.max_bytes_required and config.max_bytes <= 0:
            raise ApiError(10113)
        memory = config.storage == "memory"
        largest = limits.memory_max_stream_bytes if memory else limits.storage_max_stream_bytes
        if 0 < largest < config.max_bytes:
            raise ApiError(10122)
        account = limits.max_memory if memory else limits.max_storage
        server = self.engine.options.jetstream_limits
        ceiling = server.max_memory if memory else server.max_storage
        if ceiling < 0:
            ceiling = server.reservable_memory if memory else server.reservable_storage
        wanted = 0
        if config.max_bytes > 0:
            wanted = self.reserved(config.storage, config.name) + config.max_bytes
        if ceiling == 0 or 0 <= account < wanted or 0 <= ceiling < wanted:
            raise ApiError(10028 if memory else 10047)

    # -- streams -------------------------------------------------------------------------------

    def find(self, name: str) -> Stream:
        """A stream by name. Raises `ApiError` 10059."""
        stream = self.streams.get(name)
        if stream is None:
            raise ApiError(10059)
        return stream

    def create_stream(self, config: StreamConfig) -> Stream:
        """A new stream; the configuration was checked. Raises `ApiError`."""
        created = self.engine.clock.now
        store: StreamStore | None = None
        log: Log
        try:
            if config.storage == "memory" or self.store is None:
                log = MemoryLog(config.first_seq or 1)
            else:
                store = self.store.stream(self.account.name, config.name)
                store.create(_meta(config, created))
                log = store.open_log(config.first_seq or 1)
        except (StorageError, OSError) as error:
            raise ApiError(10049, err=str(error)) from error
        stream = Stream(self, config, log, store, created)
        self._begin(stream)
        return stream

    def _begin(self, stream: Stream) -> None:
        """Take what is published from now on."""
        self.streams[stream.name] = stream
        self.claims.add(stream.name, stream.config.subjects)
        for subject in stream.config.subjects:
            self.account.add_service(subject.encode(), stream)
        if stream.config.allow_direct:
            stream.direct = DirectGet(stream)

    def update_stream(self, stream: Stream, config: StreamConfig) -> None:
        """Change a stream's configuration; it was checked. Raises `ApiError`."""
        old = stream.config
        if stream.store is not None:
            try:
                stream.store.meta.save(_meta(config, stream.created), sync=True)
            except (StorageError, OSError) as error:
                raise ApiError(10069, err=str(error)) from error
        self.claims.remove(old.subjects)
        self.claims.add(stream.name, config.subjects)
        for subject in old.subjects:
            if subject not in config.subjects:
                self.account.remove_service(subject.encode(), stream)
        for subject in config.subjects:
            if subject not in old.subjects:
                self.account.add_service(subject.encode(), stream)
        if config.allow_direct and stream.direct is None:
            stream.direct = DirectGet(stream)
        elif not config.allow_direct and stream.direct is not None:
            stream.direct.stop()
            stream.direct = None
        stream.configure(config)
        self.advisories.stream_action("UPDATED", "modify", stream.name)

    def delete_stream(self, stream: Stream) -> None:
        """Remove a stream with its consumers and messages. Raises `ApiError`: nothing is gone."""
        if stream.store is not None:
            try:
                stream.store.delete()
            except (OSError, StorageError) as error:
                raise ApiError(10067, err=str(error)) from error
        for consumer in list(stream.consumers.values()):
            if consumer.store is not None:
                consumer.store.retire()  # its files go with the stream's, in one step
                consumer.store = None
            consumer.stop("Consumer Deleted", delete=True)
        stream.stop()
        self.claims.remove(stream.config.subjects)
        del self.streams[stream.name]
        self.count_bytes(stream.config.storage, -stream.counted)
        stream.log.delete()
        self.advisories.stream_action("DELETED", "delete", stream.name)

    def load(self) -> None:
        """Start again every stream that the store directory has. Blocks."""
        if self.store is None:
            return
        from slipstream.engine.consumer_restore import restore_consumers

        for name, store in self.store.streams(self.account.name):
            try:
                meta = msgspec.json.decode(store.meta.load())
                config = load_config(meta["config"])
                log = store.open_log(config.first_seq or 1)
            except Exception as error:  # whatever it is, the other streams are served
                self.problem(
                    f"JetStream stream '{self.account.name} > {name}' could not be recovered: "
                    f"{error}"
                )
                continue
            stream = Stream(self, config, log, store, meta["created"])
            self._begin(stream)
            _recall_ids(stream)
            restore_consumers(stream)
            lost = log.lost
            if lost.count or lost.bytes:
                self.problem(
                    f"stream '{self.account.name} > {name}' has lost {lost.count} messages: "
                    f"{lost.bytes} damaged bytes are kept aside, see docs/storage.md"
                )

    def serve(self) -> "ApiService":
        """Answer the API."""
        from slipstream.engine.api.operations import OPERATIONS

        ExplainService(self)
        return ApiService(self, OPERATIONS)

    def close(self) -> None:
        """Make everything durable and release the files. Blocks."""
        for stream in self.streams.values():
            for consumer in list(stream.consumers.values()):
                consumer.stop("Server Shutdown", delete=False)
            stream.stop()
            try:
                stream.log.close()
            except (StorageError, OSError) as error:
                self.problem(f"stream '{self.account.name} > {stream.name}': {error}")
        for storage in ("file", "memory"):
            self.count_bytes(storage, -self._stored[storage])


def _meta(config: StreamConfig, created: int) -> bytes:
    return msgspec.json.encode({"config": emit(config), "created": created})


def _recall_ids(stream: Stream) -> None:
    """Fill the duplicate window from the messages that are still stored."""
    if not stream.dedupe.window or not stream.log.messages:
        return
    stream.last_msg_id = stream.dedupe.recall(stream.log, stream.clock.now)
    stream.watch_ids()
