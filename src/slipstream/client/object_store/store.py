"""Object stores: objects of any size, kept as chunks in a stream
(docs/protocol/buckets.md#object-stores).

    store = await js.create_object_store("backups")
    info = await store.put("monday.tar", Path("monday.tar"))
    await store.get_file("monday.tar", Path("restored.tar"))

An object's bytes are its chunks; what describes it is the last message on its meta subject, written
after all chunks were acknowledged. Putting a name again replaces the object, and the old chunks go.

`pieces_of` cuts what is put, anything that holds or yields bytes, into chunks. `JetStream` has a
method for each function that makes, opens, lists or removes stores.
"""

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeAlias, TypeVar, Unpack

import msgspec

from slipstream.client.jetstream.api import new_name
from slipstream.client.jetstream.errors import StreamExistsError, StreamNotFoundError
from slipstream.client.jetstream.ordered import OrderedConsumerConfig
from slipstream.client.jetstream.stored import last_message
from slipstream.client.jetstream.watcher import HEARTBEAT_SECONDS, Watcher
from slipstream.client.object_store.errors import (
    BadObjectError,
    LinkError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreExistsError,
    StoreNotFoundError,
)
from slipstream.client.object_store.info import (
    CHUNK_BYTES,
    STREAM_PREFIX,
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    ObjectStoreConfig,
    ObjectStoreStatus,
    check_store,
    chunk_subject,
    digest_text,
    meta_subject,
    multi_map,
    read_info,
    stream_config,
    write_info,
)
from slipstream.client.object_store.reader import Chunks, Digest, ObjectReader, Progress
from slipstream.errors import Error
from slipstream.model.durations import to_seconds
from slipstream.model.unknown_name import unknown_name

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.jetstream.stream import Stream
    from slipstream.client.object_store.keywords import ObjectStoreKeywords, PutKeywords
    from slipstream.model.infos import StreamInfo

T = TypeVar("T")


async def to_the_end(steps: Coroutine[Any, Any, T]) -> T:
    """What `steps` give. A cancellation waits until they are done, however they end."""
    task = asyncio.ensure_future(steps)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # was looked at: the cancellation is what is raised
        raise


async def wait_for_acks(futures: "Iterable[asyncio.Future[Any]]", timeout: float) -> None:
    """Wait until all have come, or failed; after `timeout` seconds they are cancelled."""
    waiting = list(futures)
    if waiting:
        await asyncio.wait(waiting, timeout=timeout)
    for future in waiting:
        if not future.done():
            future.cancel()
        elif not future.cancelled():
            future.exception()  # was looked at


# Files are read in another thread, this much at a time; what lies in memory is cut into as much.
PIECE_BYTES = 4 * 1024 * 1024


class Readable(Protocol):
    """A file, or whatever reads like one."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        ...


class AsyncReadable(Protocol):
    """An `ObjectReader`, an `asyncio.StreamReader`, or whatever reads like them."""

    async def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        ...


Data: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | str
    | Path
    | Readable
    | AsyncReadable
    | Iterable[bytes]
    | AsyncIterable[bytes]
)


async def pieces_of(data: Data, size: int) -> AsyncIterator[memoryview]:
    """`data` in pieces of a few megabytes; all but the last are a multiple of `size` bytes long.

    Text is UTF-8, a `Path` a file.
    """
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data).cast("B")
        step = max(PIECE_BYTES // size, 1) * size
        for at in range(0, len(view), step):
            yield view[at : at + step]
        return
    held = bytearray()
    async for given in _pieces(data):
        # An iterable that yields a bytearray may overwrite it as soon as the next piece is asked
        # for.
        piece = given if isinstance(given, bytes) else bytes(given)
        if not held and len(piece) % size == 0:
            yield memoryview(piece)
            continue
        held += piece
        whole = len(held) - len(held) % size
        if whole:
            cut, held = memoryview(bytes(held[:whole])), held[whole:]
            yield cut
    if held:
        yield memoryview(held)


async def _pieces(data: object) -> AsyncIterator[bytes | bytearray | memoryview]:
    if isinstance(data, Path):
        file: BinaryIO = await asyncio.to_thread(data.open, "rb")
        try:
            async for piece in _read(file):
                yield piece
        finally:
            file.close()
    elif hasattr(data, "read"):
        async for piece in _read(data):
            yield piece
    elif isinstance(data, AsyncIterable):
        async for piece in data:
            yield piece
    elif isinstance(data, Iterable):
        for piece in data:
            yield piece
    else:
        raise TypeError(
            "an object is bytes, text, a Path, a file opened in binary mode, or an iterable or "
            f"async iterable of bytes, not {type(data).__name__}"
        )


async def _read(file: Readable | AsyncReadable) -> AsyncIterator[bytes]:
    while True:
        given = (
            file.read(PIECE_BYTES)
            if inspect.iscoroutinefunction(file.read)
            else asyncio.to_thread(file.read, PIECE_BYTES)
        )
        if not (piece := await given):
            return
        if not isinstance(piece, bytes):
            raise TypeError("what is read has to be bytes: open the file with 'rb'")
        yield piece


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
        """End it; an iteration over it ends."""
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


# Chunks whose acknowledgement is awaited, in bytes: enough to keep server and socket busy.
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
_LINKS_MAX = 16


class ObjectStore:
    """A store; made by `js.object_store` and `js.create_object_store`."""

    def __init__(self, js: "JetStream", info: "StreamInfo") -> None:
        self._js = js
        self._stream_name = info.config.name
        self._bucket = info.config.name.removeprefix(STREAM_PREFIX)
        self._is_direct = info.config.allow_direct

    @property
    def bucket(self) -> str:
        """The store's name."""
        return self._bucket

    @property
    def stream_name(self) -> str:
        """The stream behind it."""
        return self._stream_name

    async def status(self) -> ObjectStoreStatus:
        """How much it holds, its limits, and the stream's own info."""
        stream = await self._stream()
        return ObjectStoreStatus(self._bucket, await stream.info())

    async def _stream(self) -> "Stream":
        try:
            return await self._js.stream(self._stream_name)
        except StreamNotFoundError as error:
            raise self._is_gone() from error

    def _is_gone(self) -> StoreNotFoundError:
        return StoreNotFoundError(f"object store {self._bucket!r}: it does not exist (any more)")

    # -- putting -------------------------------------------------------------------------------

    async def put(
        self,
        name: str,
        data: Data,
        *,
        description: str = "",
        headers: "Mapping[str, str | list[str]] | None" = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_BYTES,
        progress: Progress | None = None,
    ) -> ObjectInfo:
        """Store an object, replacing the one of that name; what describes it.

        `data` is bytes, text, a `Path`, a file open for reading bytes, or an iterable or async
        iterable of bytes. If it fails, also if it is cancelled, the chunks sent so far are
        removed and the former object stays; a cancellation that comes when all chunks are there
        waits until the object is. Raises `BadObjectError` and what `publish` raises.
        """
        if chunk_size < 1:
            raise BadObjectError(
                f"put {name!r}: chunk_size={chunk_size}, a chunk has 1 byte or more"
            )
        old = await self._find(name)
        options = ObjectOptions(max_chunk_size=chunk_size)
        info = ObjectInfo(
            name=name,
            description=description,
            headers=multi_map(headers or {}),
            metadata=dict(metadata or {}),
            options=options,
            bucket=self._bucket,
            nuid=new_name(),
        )
        try:
            await self._send_chunks(info, data, chunk_size, progress)
        except BaseException:
            with contextlib.suppress(Error):  # what went wrong first is what is raised
                await to_the_end(self._remove_chunks(info.nuid))
            raise
        return await to_the_end(self._complete(info, old))

    async def _complete(self, info: ObjectInfo, old: ObjectInfo | None) -> ObjectInfo:
        """Make an object of the chunks that are there; those of the former one go."""
        try:
            await self._send_info(info)
        except Error as error:
            if not await self._is_stored(info, error):
                raise
        if old is not None and not old.deleted and old.nuid:
            await self._remove_chunks(old.nuid)
        stored = await self._find(info.name)
        return info if stored is None else stored

    async def _is_stored(self, info: ObjectInfo, error: Error) -> bool:
        """Whether an info is there all the same; if not, its chunks go."""
        try:
            stored = await self._find(info.name)
        except Error:
            raise error from None  # it cannot be known: an info without its chunks would be worse
        if stored is not None and stored.nuid == info.nuid:
            return True
        with contextlib.suppress(Error):
            await self._remove_chunks(info.nuid)
        return False

    async def put_file(
        self, path: "Path | str", name: str = "", **options: "Unpack[PutKeywords]"
    ) -> ObjectInfo:
        """Store the file at `path`, as `name` or the path's text; `options` are those of `put`."""
        return await self.put(name or str(path), Path(path), **options)

    async def _send_chunks(
        self, info: ObjectInfo, data: Data, chunk_size: int, progress: Progress | None
    ) -> None:
        subject = chunk_subject(self._bucket, info.nuid)
        total = len(data) if isinstance(data, bytes | bytearray | memoryview) else -1
        digest = Digest()
        awaited: deque[Any] = deque()
        in_flight_max = max(1, IN_FLIGHT_BYTES_MAX // chunk_size)
        try:
            async for piece in pieces_of(data, chunk_size):
                await digest.update(piece)
                for at in range(0, len(piece), chunk_size):
                    chunk = piece[at : at + chunk_size]
                    awaited.append(await self._js.publish_chunk(subject, chunk))
                    info.size += len(chunk)
                    info.chunks += 1
                    if progress is not None:
                        progress(info.size, total)
                    if len(awaited) >= in_flight_max:
                        await awaited.popleft()
            while awaited:
                await awaited.popleft()
        except BaseException:
            # A server may purge before it has stored what it was sent: let that come to an end.
            await to_the_end(wait_for_acks(awaited, self._js.timeout))
            raise
        info.digest = digest_text(await digest.finish())

    async def _send_info(self, info: ObjectInfo) -> None:
        subject = meta_subject(self._bucket, info.name)
        await self._js.publish(subject, write_info(info), rollup="sub")

    async def _remove_chunks(self, nuid: str) -> None:
        stream = await self._stream()
        await stream.purge(filter=chunk_subject(self._bucket, nuid))

    # -- getting -------------------------------------------------------------------------------

    async def open(
        self, name: str, *, show_deleted: bool = False, progress: Progress | None = None
    ) -> ObjectReader:
        """Begin to read an object, following links; a reader to iterate over.

        Raises `ObjectNotFoundError`, `LinkError`.
        """
        store: ObjectStore = self
        info = await self.info(name, show_deleted=show_deleted)
        for _ in range(_LINKS_MAX):
            link = info.link
            if link is None:
                subject = chunk_subject(store._bucket, info.nuid)
                chunks = Chunks(self._js, store._stream_name, subject, is_direct=store._is_direct)
                return ObjectReader(info, chunks, progress)
            if not link.name:
                raise LinkError(
                    f"get {name!r} from object store {self._bucket!r}: it is a link to the whole "
                    f"store {link.bucket!r}. Open that and get an object from it"
                )
            if link.bucket != store._bucket:
                store = await self._js.object_store(link.bucket)
            info = await store.info(link.name)
        raise LinkError(
            f"get {name!r} from object store {self._bucket!r}: its links go in a circle"
        )

    async def get(
        self, name: str, *, show_deleted: bool = False, progress: Progress | None = None
    ) -> bytes:
        """An object's bytes. Raises `ObjectNotFoundError`, `LinkError`, `DigestMismatchError`."""
        async with await self.open(name, show_deleted=show_deleted, progress=progress) as reader:
            return await reader.read()

    async def get_text(self, name: str, *, show_deleted: bool = False) -> str:
        """An object's text."""
        return (await self.get(name, show_deleted=show_deleted)).decode()

    async def get_file(
        self,
        name: str,
        path: "Path | str",
        *,
        show_deleted: bool = False,
        progress: Progress | None = None,
    ) -> ObjectInfo:
        """Write an object to the file at `path`; what describes it.

        The file appears when it is whole and its digest is right, not before.
        """
        path = Path(path)
        partial = path.with_name(f"{path.name}.{new_name()}.part")
        opened = await self.open(name, show_deleted=show_deleted, progress=progress)
        async with opened as reader:
            opening = asyncio.ensure_future(asyncio.to_thread(partial.open, "wb"))
            try:
                file = await asyncio.shield(opening)
                held: list[bytes | memoryview] = []
                while (chunk := await reader.next_chunk()) is not None:
                    held.append(chunk)
                    if len(held) * len(chunk) >= PIECE_BYTES:
                        await asyncio.to_thread(file.writelines, held)
                        held = []
                await asyncio.to_thread(file.writelines, held)
                await asyncio.to_thread(file.close)
                partial.replace(path)
            except BaseException:
                await asyncio.wait([opening])
                if opening.exception() is None:
                    opening.result().close()
                    partial.unlink(missing_ok=True)
                raise
            return reader.info

    async def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """What describes an object. Raises `ObjectNotFoundError`."""
        found = await self._find(name)
        if found is None or (found.deleted and not show_deleted):
            what = "there is none" if found is None else "it is deleted"
            raise ObjectNotFoundError(f"object {name!r} of store {self._bucket!r}: {what}")
        return found

    async def _find(self, name: str) -> ObjectInfo | None:
        """The info of an object, also of a deleted one."""
        subject = meta_subject(self._bucket, name)
        try:
            message = await last_message(self._js, self._stream_name, subject, self._is_direct)
        except StreamNotFoundError as error:
            raise self._is_gone() from error
        return None if message is None else read_info(message.data, message.timestamp_ns)

    # -- changing ------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        """Delete an object; its info stays, marked. Raises `ObjectNotFoundError`."""
        info = await self.info(name, show_deleted=True)
        await to_the_end(self._delete(info))

    async def _delete(self, info: ObjectInfo) -> None:
        gone = msgspec.structs.replace(info, deleted=True, size=0, chunks=0, digest="")
        await self._send_info(gone)
        if info.nuid:
            await self._remove_chunks(info.nuid)

    async def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        headers: "Mapping[str, str | list[str]] | None" = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change what describes an object (its name too); what is not given stays.

        Raises `ObjectNotFoundError`, and `ObjectExistsError` if the new name is taken.
        """
        info = await self.info(name)
        changes: dict[str, Any] = {"name": new_name or name}
        if description is not None:
            changes["description"] = description
        if headers is not None:
            changes["headers"] = multi_map(headers)
        if metadata is not None:
            changes["metadata"] = dict(metadata)
        changed = msgspec.structs.replace(info, **changes)
        if changed.name != name:
            taken = await self._find(changed.name)
            if taken is not None and not taken.deleted:
                raise ObjectExistsError(
                    f"rename object {name!r} of store {self._bucket!r}: there is an object "
                    f"{changed.name!r} already. Delete it first"
                )
        await to_the_end(self._change(name, changed))
        return await self.info(changed.name)

    async def _change(self, name: str, changed: ObjectInfo) -> None:
        """Store another info of the object `name`, which may have another name now."""
        await self._send_info(changed)
        if changed.name != name:
            stream = await self._stream()
            await stream.purge(filter=meta_subject(self._bucket, name))

    async def add_link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Let `name` lead to another object, of this store or another one.

        Raises `LinkError` if the target is deleted or a link itself, `ObjectExistsError` if `name`
        is an object.
        """
        if target.deleted:
            raise LinkError(f"link {name!r} to {target.name!r}: that object is deleted")
        if target.is_link:
            raise LinkError(
                f"link {name!r} to {target.name!r}: that is a link itself. Link to the object that "
                "it leads to"
            )
        return await self._add_link(name, ObjectLink(target.bucket, target.name))

    async def add_bucket_link(self, name: str, store: "ObjectStore | str") -> ObjectInfo:
        """Let `name` lead to a whole store, given as such or by its name.

        Raises `ObjectExistsError` if `name` is an object.
        """
        bucket = store if isinstance(store, str) else store.bucket
        return await self._add_link(name, ObjectLink(check_store(bucket)))

    async def _add_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        there = await self._find(name)
        if there is not None and not there.deleted and not there.is_link:
            raise ObjectExistsError(
                f"link {name!r} in object store {self._bucket!r}: there is an object of that name"
            )
        info = ObjectInfo(
            name=name,
            options=ObjectOptions(link=link),
            bucket=self._bucket,
            nuid=new_name(),
        )
        await self._send_info(info)
        return await self.info(name)

    async def seal(self) -> None:
        """Make the store read-only, for good."""
        stream = await self._stream()
        config = (await stream.info()).config
        await self._js.update_stream(config.replace(sealed=True))

    # -- many at once --------------------------------------------------------------------------

    async def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        heartbeat: "float | timedelta" = HEARTBEAT_SECONDS,
    ) -> ObjectWatch:
        """Infos of all objects as they are, then None once, then as they change.

        `updates_only` begins with none, `ignore_deletes` leaves deleted objects out, a server that
        is silent for twice `heartbeat` seconds is asked anew. A store keeps one info of an object,
        so `include_history` changes nothing where every client keeps the conventions.
        """
        watch = ObjectWatch(
            self._js,
            stream=self._stream_name,
            bucket=self._bucket,
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            heartbeat=to_seconds(heartbeat, "heartbeat"),
        )
        try:
            await watch.start()
        except StreamNotFoundError as error:
            raise self._is_gone() from error
        return watch

    async def list(self, *, show_deleted: bool = False) -> list[ObjectInfo]:
        """What describes every object, sorted by name; an empty list if there is none."""
        found = [info async for info in self.iterate(show_deleted=show_deleted)]
        return sorted(found, key=lambda info: info.name)

    async def iterate(self, *, show_deleted: bool = False) -> AsyncIterator[ObjectInfo]:
        """What describes every object, one by one, in the order in which they were put."""
        async with await self.watch(ignore_deletes=not show_deleted) as watch:
            async for info in watch:
                if info is None:
                    return
                yield info


_ALL_SUBJECTS = "$O.*.C.>"


def config_of(
    config: "ObjectStoreConfig | str | None", options: "ObjectStoreKeywords"
) -> ObjectStoreConfig:
    """The configuration given as an object, or as a name and options."""
    if isinstance(config, ObjectStoreConfig):
        if options:
            raise BadObjectError("give an ObjectStoreConfig or options, not both")
        return config
    if unknown := options.keys() - set(ObjectStoreConfig.__struct_fields__):
        known = ObjectStoreConfig.__struct_fields__
        raise TypeError(unknown_name("an object store", "option", unknown, known))
    if config is not None:
        options.setdefault("bucket", config)
    if "bucket" not in options:
        raise TypeError("an object store needs a name: give it first, or an ObjectStoreConfig")
    return ObjectStoreConfig(**options)


async def open_store(js: "JetStream", bucket: str) -> ObjectStore:
    """A store that exists. Raises `StoreNotFoundError`."""
    try:
        stream = await js.stream(STREAM_PREFIX + check_store(bucket))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(
            f"object store {bucket!r}: there is none. Make it with `create_object_store`"
        ) from error
    return ObjectStore(js, stream.cached_info)


async def create_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """A new store, or the one that exists with this configuration. Raises `StoreExistsError`."""
    try:
        stream = await js.create_stream(stream_config(config))
    except StreamExistsError as error:
        raise StoreExistsError(
            f"create object store {config.bucket!r}: it exists with another configuration. Use "
            "`object_store` to open it, `update_object_store` to change it"
        ) from error
    return ObjectStore(js, stream.cached_info)


async def update_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """Change a store's configuration. Raises `StoreNotFoundError`."""
    try:
        stream = await js.update_stream(stream_config(config))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(f"update object store {config.bucket!r}: there is none") from error
    return ObjectStore(js, stream.cached_info)


async def create_or_update_store(js: "JetStream", config: ObjectStoreConfig) -> ObjectStore:
    """A store with this configuration, whether there was one or not."""
    try:
        return await update_store(js, config)
    except StoreNotFoundError:
        return await create_store(js, config)


async def delete_store(js: "JetStream", bucket: str) -> None:
    """Remove a store and all its objects. Raises `StoreNotFoundError`."""
    try:
        await js.delete_stream(STREAM_PREFIX + check_store(bucket))
    except StreamNotFoundError as error:
        raise StoreNotFoundError(f"delete object store {bucket!r}: there is none") from error


async def store_names(js: "JetStream") -> AsyncIterator[str]:
    """The names of all stores, page by page."""
    async for name in js.stream_names(subject=_ALL_SUBJECTS):
        if name.startswith(STREAM_PREFIX):
            yield name.removeprefix(STREAM_PREFIX)


async def store_statuses(js: "JetStream") -> AsyncIterator[ObjectStoreStatus]:
    """The status of every store, page by page."""
    async for info in js.streams(subject=_ALL_SUBJECTS):
        if info.config.name.startswith(STREAM_PREFIX):
            yield ObjectStoreStatus(info.config.name.removeprefix(STREAM_PREFIX), info)
