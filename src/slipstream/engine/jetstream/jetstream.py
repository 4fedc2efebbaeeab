"""JetStream of one account: its streams, what they may use, and starting them again."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.commit.state_commit import StateCommit
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.doubt import Doubts, doubt_stream, trust_stream
from slipstream.engine.consumer.letter_box import take_back_letters
from slipstream.engine.consumer.restore import restore_consumers
from slipstream.engine.consumer.state import encode_state
from slipstream.engine.jetstream.advisories import Advisories
from slipstream.engine.jetstream.places import Places
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import read_number
from slipstream.engine.protocol.options import API_LEVEL, AccountJetStreamLimits
from slipstream.engine.session.host import Host
from slipstream.engine.session.message import Inbound
from slipstream.engine.sourcing.inflow import set_inflow
from slipstream.engine.stream.config import StreamConfig, load_config
from slipstream.engine.stream.direct_get import DirectGet, DirectGroup
from slipstream.engine.stream.retention import enforce_again
from slipstream.engine.stream.stream import Stream
from slipstream.engine.stream.subject_claims import SubjectClaims
from slipstream.errors import StorageError
from slipstream.log.base import Log
from slipstream.log.disk import report_damage
from slipstream.log.durability import Done
from slipstream.log.memory_log import MemoryLog
from slipstream.log.stream_place import StreamPlace
from slipstream.log.stream_store import (
    Closing,
    ConfigurationFile,
    Store,
    StreamStore,
)
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_REQUIRED_API_LEVEL
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.session.account import Account


class JetStream:
    """The streams of `account`. `store` is the server's store directory; None: all in memory."""

    def __init__(self, account: "Account", engine: Host, store: Store | None) -> None:
        self.account = account
        self.engine = engine
        self.store = store
        self.streams: dict[str, Stream] = {}
        self.claims = SubjectClaims()
        self.direct_groups: dict[str, DirectGroup] = {}
        self._stored = {"file": 0, "memory": 0}  # kept up to date where it is limited
        self.set_limits(account.limits.jetstream)
        self.api_total = 0
        self.api_errors = 0
        self.problems: list[str] = []  # for healthz
        self._created = 0  # when the last stream was
        self.advisories = Advisories(self)
        self.doubts = Doubts(self)
        self._unreadable: dict[str, str] = {}  # what was reported of streams, by name
        self.transfers: set[Any] = set()  # snapshots and restores that are under way
        self.arriving: set[str] = set()  # names of streams that are restored in a moment
        self.places = Places(self)

    def set_limits(self, limits: AccountJetStreamLimits | None) -> None:
        """What the account may use, from now on; None for no bound, where it is off."""
        limits = self.limits = limits or AccountJetStreamLimits()
        server = self.engine.options.ceilings
        self.has_storage_limits = (
            limits.max_memory >= 0
            or limits.max_storage >= 0
            or server.max_memory_store >= 0
            or server.max_file_store >= 0
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

    def resolve(self, text: str) -> None:
        """A problem is none any more."""
        if text in self.problems:
            self.problems.remove(text)

    def report_damage(self, text: str) -> None:
        """Something that was durable is not there any more, or may be an older one."""
        if self.store is not None:
            with suppress(StorageError):  # of a disk that has done what is to be done
                report_damage(self.store.disk, text)

    @property
    def state(self) -> StateCommit:
        """Keeps configurations and positions; there is one where there is a store."""
        state = self.engine.state
        assert state is not None, "nothing is kept of what is in memory"
        return state

    def when_kept(self, done: Callable[[Exception | None], None]) -> None:
        """Call `done` once all configurations and positions are durable, or cannot be."""
        if self.store is None:
            done(None)
        else:
            self.state.when_durable(done)

    def unless_stuck(self, wait: Callable[[Done], None]) -> Callable[[Done], None]:
        """`wait`, for who has changed nothing: its callback is also called once `is_stuck`."""
        if self.store is None:
            return wait
        return lambda done: wait(self.state.unless_stuck(done))

    @property
    def is_stuck(self) -> bool:
        """Whether the disk takes nothing more for now: what there is, is shown all the same."""
        return self.store is not None and self.state.is_stuck

    @property
    def is_kept(self) -> bool:
        """Whether that is so of all that was changed at once: of creations, changes, removals."""
        return self.store is None or self.state.is_settled

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
            message.data, message.header_start, message.body_start, NATS_REQUIRED_API_LEVEL
        )
        if not asked:
            return False
        sign = asked[:1] if asked[:1] in (b"+", b"-") else b""
        number = read_number(asked[len(sign) :])
        return number < 0 or (number > API_LEVEL and sign != b"-")

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
            raise ApiError(ErrorCode.ACCOUNT_RESOURCES_EXCEEDED)
        server = self.engine.options.ceilings
        ceiling = server.max_memory_store if storage == "memory" else server.max_file_store
        if 0 <= ceiling < self.engine.stored[storage] + size:
            raise ApiError(ErrorCode.INSUFFICIENT_RESOURCES)

    def room_for(self, storage: str) -> int:
        """How many bytes more may be stored in one stream; -1 for no bound."""
        server = self.engine.options.ceilings
        memory = storage == "memory"
        account = self.limits.max_memory if memory else self.limits.max_storage
        ceiling = server.max_memory_store if memory else server.max_file_store
        rooms = []
        if account >= 0:
            rooms.append(account - self._stored[storage])
        if ceiling >= 0:
            rooms.append(ceiling - self.engine.stored[storage])
        return max(min(rooms), 0) if rooms else -1

    def count_bytes(self, storage: str, change: int) -> None:
        """A stream stores so much more, or less."""
        self._stored[storage] += change
        self.engine.stored[storage] += change

    def check_account(self, config: StreamConfig, is_new: bool) -> None:
        """What the account may have. Raises `ApiError`."""
        limits = self.limits
        if is_new and 0 <= limits.max_streams <= len(self.streams):
            raise ApiError(ErrorCode.MAXIMUM_STREAMS_LIMIT)
        if limits.max_bytes_required and config.max_bytes <= 0:
            raise ApiError(ErrorCode.STREAM_MAX_BYTES_REQUIRED)
        memory = config.storage == "memory"
        largest = limits.memory_max_stream_bytes if memory else limits.storage_max_stream_bytes
        if 0 < largest < config.max_bytes:
            raise ApiError(ErrorCode.STREAM_MAX_STREAM_BYTES_EXCEEDED)
        account = limits.max_memory if memory else limits.max_storage
        server = self.engine.options.ceilings
        ceiling = server.max_memory_store if memory else server.max_file_store
        if ceiling < 0:
            options = self.engine.options
            ceiling = options.reservable_memory if memory else options.reservable_storage
        wanted = 0
        if config.max_bytes > 0:
            wanted = self.reserved(config.storage, config.name) + config.max_bytes
        if ceiling == 0 or 0 <= account < wanted or 0 <= ceiling < wanted:
            raise ApiError(
                ErrorCode.MEMORY_RESOURCES_EXCEEDED
                if memory
                else ErrorCode.STORAGE_RESOURCES_EXCEEDED
            )

    # -- streams -------------------------------------------------------------------------------

    def find(self, name: str) -> Stream:
        """A stream by name. Raises `ApiError` STREAM_NOT_FOUND."""
        stream = self.streams.get(name)
        if stream is None:
            raise ApiError(ErrorCode.STREAM_NOT_FOUND)
        return stream

    def config_of(self, name: str) -> StreamConfig | None:
        """The configuration of a stream; None if there is none of that name."""
        stream = self.streams.get(name)
        return stream.config if stream is not None else None

    def stream_of(self, subject: str) -> Stream | None:
        """The stream that stores a literal subject; None if there is none."""
        return next((self.streams[name] for name in self.claims.owners(subject)), None)

    def find_consumer(self, stream: str, name: str) -> Any:
        """A consumer by name; None if there is none."""
        found = self.streams.get(stream)
        return found.consumers.get(name) if found is not None else None

    def create_stream(self, config: StreamConfig) -> Stream:
        """A new stream; the configuration was checked. It takes what is published from now on,
        which counts once the stream is durable (see `when_kept`); if it cannot be, it goes again.
        Raises `ApiError`; `NotYetError`: ask again once it has its place on the disk."""
        if config.storage == "memory" or self.store is None:
            log = MemoryLog(config.first_seq or 1)
            stream = Stream(self, config, log, None, self.new_created())
            self._begin(stream)
            set_inflow(stream)
            return stream
        try:
            stream = self._make(config, self.places.take(config.name))
        except (StorageError, OSError) as error:
            raise ApiError(ErrorCode.STREAM_CREATE, err=str(error)) from error
        self._begin(stream)
        set_inflow(stream)
        self.resolve(self._unreadable.pop(stream.name, ""))
        return stream

    def _make(self, config: StreamConfig, place: StreamPlace) -> Stream:
        """A stream whose configuration is on its way to the commit log. Raises `StorageError`: then
        there is none."""
        store, created = place.store, place.created
        log: Log | None = None
        try:
            log = place.begin_log(config.first_seq or 1)
            stream = Stream(self, config, log, store, created)
            self.engine.commit.hold(stream.committed)
            stream.relax()

            def kept(error: Exception | None) -> None:
                if error is None:
                    self.engine.commit.release(stream.committed)
                    stream.relax()
                elif not stream.closed:
                    self._abandon(stream, place, error)

            self.state.keep(store.meta, _meta(config, created), kept)
        except (StorageError, OSError):
            if log is not None:
                log.delete()
            self.places.discard(place)
            raise
        return stream

    def _abandon(self, stream: Stream, place: StreamPlace, error: Exception) -> None:
        """A stream could not be made durable: it goes, and its publishers are told."""
        assert stream.store is not None
        stream.refuse_waiting(str(error))
        stream.store.meta.retire()
        self._take_away(stream)
        self.places.discard(place)  # or the next start removes it, which has no configuration

    def new_created(self) -> int:
        """When a new stream is created: no two have the same time, which tells those of one name
        apart."""
        self._created = max(self.engine.clock.now, self._created + 1)
        return self._created

    def take_in(self, stream: Stream) -> None:
        """A stream with messages is there, in files or in memory; its consumers are not."""
        self._begin(stream)
        _recall_ids(stream)
        self.resolve(self._unreadable.pop(stream.name, ""))

    def _begin(self, stream: Stream) -> None:
        """Take what is published from now on."""
        self.streams[stream.name] = stream
        self.claims.add(stream.name, stream.config.subjects)
        for subject in stream.config.subjects:
            self.account.add_service(subject.encode(), stream)
        if stream.config.allow_direct:
            stream.direct = DirectGet(stream)
        stream.run_jobs()

    def update_stream(self, stream: Stream, config: StreamConfig) -> None:
        """Change a stream's configuration; it was checked. Raises `ApiError`."""
        old = stream.config
        if stream.store is not None:
            try:
                self.state.keep(stream.store.meta, _meta(config, stream.created))
            except (StorageError, OSError) as error:
                raise ApiError(ErrorCode.STREAM_UPDATE, err=str(error)) from error
        self.claims.remove(stream.name, old.subjects)
        self.claims.add(stream.name, config.subjects)
        before, after = set(old.subjects), set(config.subjects)
        for subject in old.subjects:
            if subject not in after:
                self.account.remove_service(subject.encode(), stream)
        for subject in config.subjects:
            if subject not in before:
                self.account.add_service(subject.encode(), stream)
        if config.allow_direct and stream.direct is None:
            stream.direct = DirectGet(stream)
        elif not config.allow_direct and stream.direct is not None:
            stream.direct.stop()
            stream.direct = None
        stream.configure(config)
        if config.retention != old.retention:  # followers ask again, and are given durable ones
            for consumer in list(stream.direct_consumers.values()):
                consumer.stop("Consumer Deleted", delete=True)
        trust_stream(stream)
        set_inflow(stream)
        self.advisories.stream_action("UPDATED", "modify", stream.name)

    def delete_stream(self, stream: Stream) -> None:
        """Remove a stream with its consumers and messages. Raises `ApiError`: nothing is gone."""
        if stream.store is not None:
            try:
                self.state.remove(stream.store.leaving(), stream.created)
            except (OSError, StorageError) as error:
                raise ApiError(ErrorCode.STREAM_TEMPLATE_DELETE, err=str(error)) from error
            stream.store.meta.retire()
            stream.store.letters.retire()
        self._take_away(stream)
        self.advisories.stream_action("DELETED", "delete", stream.name)

    def _take_away(self, stream: Stream) -> None:
        """Have a stream, whose files are to go, serve nobody any more."""
        if stream.inflow is not None:
            stream.inflow.stop(delete=True)
        stream.refuse_published(f"stream {stream.name} was deleted meanwhile")
        stream.stop()  # so that no consumer that ends has it look for what nobody needs any more
        for consumer in stream.every_consumer():
            if consumer.store is not None:
                consumer.store.retire()  # its files go with the stream's, in one step
                consumer.store = None
            consumer.stop("Consumer Deleted", delete=True)
        self.claims.remove(stream.name, stream.config.subjects)
        del self.streams[stream.name]
        self.count_bytes(stream.config.storage, -stream.counted)
        stream.log.delete()
        for transfer in list(self.transfers):
            transfer.look()
        self.doubts.forget(stream.name)

    def load(self) -> None:
        """Start again every stream that the store directory has. Blocks."""
        if self.store is None:
            return
        found: list[tuple[str, StreamConfig, StreamStore, int]] = []
        for name, store in self.store.streams(self.account.name):
            try:
                meta = msgspec.json.decode(store.meta.load())
                config = load_config(meta["config"])
                store.belongs_to(meta["created"])
                self._created = max(self._created, meta["created"])
                found.append((name, config, store, meta["created"]))
            except Exception as error:  # whatever it is, the other streams are served
                self._cannot_read(name, error)
        logs = self.store.open_logs([(one[2], one[1].first_seq or 1) for one in found])
        for (name, config, store, created), log in zip(found, logs, strict=True):
            if isinstance(log, Exception):
                self._cannot_read(name, log)
            else:
                self._go_on(Stream(self, config, log, store, created), store)
        for stream in self.streams.values():
            take_back_letters(stream)

    def _cannot_read(self, name: str, error: Exception) -> None:
        self._unreadable[name] = (
            f"JetStream stream '{self.account.name} > {name}' could not be recovered: {error}"
        )
        self.problem(self._unreadable[name])
        self.report_damage(self._unreadable[name])

    def _go_on(self, stream: Stream, store: StreamStore) -> None:
        """A stream of an earlier process is served again, with its consumers."""
        name = f"stream '{self.account.name} > {stream.name}'"
        self._begin(stream)
        if store.meta.doubt:
            doubt_stream(stream, store.meta.doubt)
        self.check_copies(store.meta, name)
        enforce_again(stream)
        _recall_ids(stream)
        restore_consumers(stream)
        set_inflow(stream, is_restored=True)
        lost = stream.log.lost
        if lost.count or lost.bytes:
            self.problem(
                f"{name} has lost {lost.count} messages, and {lost.bytes} damaged bytes are kept "
                "aside: see docs/storage.md"
            )

    def check_copies(self, configuration: ConfigurationFile, owner: str) -> None:
        """Report a damaged second copy of a configuration that was read, and have it written
        anew."""
        if configuration.damaged:
            self.problem(
                f"the configuration of {owner} has a damaged copy, {configuration.damaged}; "
                "the other one is whole and the newest, and is copied again"
            )
        if configuration.is_stale:
            try:
                self.state.keep(configuration, configuration.content)
            except StorageError:
                pass  # it is readable as it is; the next start attempts it again

    def dismiss(self) -> None:
        """Answer all pull requests that wait: the server is about to stop."""
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                consumer.delivery.dismiss()

    def close(self) -> None:
        """Make everything durable and release the files; the commit log is settled. Blocks."""
        self.doubts.stop()
        self.places.stop()
        for transfer in list(self.transfers):
            transfer.stop()
        positions = self._end_consumers()
        for stream in self.streams.values():
            stream.stop()
            try:
                stream.log.close()
            except (StorageError, OSError) as error:
                self.problem(f"stream '{self.account.name} > {stream.name}': {error}")
        self._save(positions)  # after the removals that they have taken note of
        for storage in ("file", "memory"):
            self.count_bytes(storage, -self._stored[storage])

    def keep_positions(self) -> None:
        """Have the commit log hold the positions that have changed since they were saved."""
        for stream in self.streams.values():
            is_settled = stream.is_settled
            for consumer in stream.consumers.values():
                if not consumer.life.is_unsaved or consumer.store is None:
                    continue
                if not is_settled and (consumer.took_removals or not consumer.unsaved):
                    continue  # the removals come first: see `close`
                try:
                    self.state.keep(consumer.store.state, encode_state(consumer))
                    consumer.unsaved = False
                except StorageError:
                    return  # reported when the log failed, or full: the files may take them

    def _end_consumers(self) -> list[tuple[Consumer, bytes]]:
        """End all consumers; where they are, if that is to be saved."""
        positions = []
        for stream in self.streams.values():
            for consumer in stream.every_consumer():
                is_unsaved = consumer.life.is_unsaved
                consumer.stop("Server Shutdown", delete=False)
                if consumer.store is None:
                    continue
                if is_unsaved or not consumer.store.state.is_new:  # else it is where it began
                    positions.append((consumer, encode_state(consumer)))
        return positions

    def _save(self, positions: list[tuple[Consumer, bytes]]) -> None:
        """Save where consumers are, unless the next start finds in the commit log where they
        were."""
        if self.store is None or not self.state.log.is_applied():
            return
        closing = Closing(self.store.disk)
        for consumer, position in positions:
            try:
                closing.add(consumer.store, position)
            except (OSError, StorageError) as error:
                name = f"'{self.account.name} > {consumer.stream.name} > {consumer.name}'"
                self.problem(f"consumer {name} could not be saved: {error}")
        try:
            closing.run()
        except (OSError, StorageError) as error:
            self.problem(f"consumers of account '{self.account.name}' could not be saved: {error}")


def _meta(config: StreamConfig, created: int) -> bytes:
    return msgspec.json.encode({"config": config.emit(), "created": created})


def _recall_ids(stream: Stream) -> None:
    """Fill the duplicate window from the messages that are still stored."""
    if not stream.dedupe.window or not stream.log.messages:
        return
    stream.last_msg_id = stream.dedupe.recall(stream.log, stream.clock.now)
    stream.watch_ids()
