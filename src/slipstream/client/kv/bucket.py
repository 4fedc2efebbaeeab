"""Key-value buckets: the last values of keys, kept in a stream (docs/protocol/buckets.md).

    kv = await js.create_key_value("prefs", history=5)
    revision = await kv.put("theme", b"dark")
    entry = await kv.get("theme")            # entry.value == b"dark"
    await kv.update("theme", b"light", entry.revision)

Every write is a message on the key's subject, every read the last message on it. Reads may be
answered by any replica or mirror of the bucket: a value just written may show a moment later.

`JetStream` has a method for each function that makes, opens, lists or removes buckets.
"""

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from time import time_ns
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from slipstream.client.codecs import Codec, codec_for, encode
from slipstream.client.jetstream.errors import (
    ApiError,
    StreamExistsError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from slipstream.client.jetstream.stored import Found, last_message, message_at
from slipstream.client.jetstream.watcher import HEARTBEAT_SECONDS
from slipstream.client.kv.config import (
    STREAM_PREFIX,
    SUBJECT_PREFIX,
    KeyCodec,
    KeyValueConfig,
    KeyValueStatus,
    PlainKeys,
    check_bucket,
    check_key,
    check_pattern,
    stream_config,
)
from slipstream.client.kv.entries import KeyValueEntry, Operation, Watch, WatchOptions, operation_of
from slipstream.client.kv.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    BucketOptionError,
    KeyDeletedError,
    KeyExistsError,
    KeyNotFoundError,
    RevisionMismatchError,
)
from slipstream.client.value_types import Value_co
from slipstream.model.durations import to_seconds
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_names import NATS_ROLLUP
from slipstream.model.unknown_name import unknown_name

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.kv.keywords import KeyValueKeywords
    from slipstream.model.configurations import StreamConfig
    from slipstream.model.infos import StreamInfo

"""The server's code for a message with a TTL where the stream allows none."""

MARKERS_KEPT_SECONDS = 30 * 60.0
"""Delete markers younger than this survive `purge_deletes`: watchers may not have seen them."""


D = TypeVar("D")


class KeyValue(Generic[Value_co]):
    """A bucket; made by `js.key_value` and `js.create_key_value`.

    Keys are text; values are whatever `encode` takes, and come back as the `type` the bucket was
    opened with (bytes if with none). Type checkers know that type: with ``type=Order`` it is a
    `KeyValue[Order]`, and its entries have an Order or, where a key may be deleted, None.
    """

    def __init__(
        self,
        js: "JetStream",
        info: "StreamInfo",
        *,
        type: Any = None,
        key_codec: KeyCodec | None = None,
    ) -> None:
        config = info.config
        self._js = js
        self._stream = config.name
        self._bucket = config.name.removeprefix(STREAM_PREFIX)
        self._is_direct = config.allow_direct
        self._keys: KeyCodec = key_codec or PlainKeys()
        self._kind: Any = None if type is None or type is bytes else type
        registry = js.connection.options.codecs
        if registry is not None and self._kind is not None:
            self._kind = codec_for(self._kind, registry)
        self._codec: Codec[Any] | None = None if self._kind is None else codec_for(self._kind)
        self._pre = f"{SUBJECT_PREFIX}{self._bucket}."
        prefix = js.api.prefix
        self._put_pre = self._pre if prefix == "$JS.API" else f"{prefix}.{self._pre}"
        if config.mirror is not None:
            origin = config.mirror.name.removeprefix(STREAM_PREFIX)
            self._pre = self._put_pre = f"{SUBJECT_PREFIX}{origin}."
            if config.mirror.external is not None and config.mirror.external.api:
                self._put_pre = f"{config.mirror.external.api}.{self._pre}"

    # -- what it is ----------------------------------------------------------------------------

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self._bucket

    @property
    def stream_name(self) -> str:
        """The stream behind it."""
        return self._stream

    async def status(self) -> KeyValueStatus:
        """How many values it holds, its limits, and the stream's own info."""
        try:
            stream = await self._js.stream(self._stream)
            return KeyValueStatus(self._bucket, await stream.info())
        except StreamNotFoundError as error:
            raise self._is_gone() from error

    # -- writing -------------------------------------------------------------------------------

    async def put(self, key: str, value: Any) -> int:
        """Store `value` under `key`; its revision.

        Raises `InvalidKeyError`, `CodecError` and what `publish` raises.
        """
        ack = await self._js.publish(self._to(key), encode(value, self._codec))
        return ack.sequence

    async def create(self, key: str, value: Any, *, ttl: "float | timedelta | None" = None) -> int:
        """Store `value` if `key` has none; its revision.

        It expires after `ttl` seconds if given (whole ones). Raises `KeyExistsError`, and
        `BucketOptionError` for a `ttl` in a bucket without `limit_marker_ttl`.
        """
        data = encode(value, self._codec)
        try:
            return await self._write(key, data, 0, ttl=ttl)
        except WrongLastSequenceError as error:
            refusal = error
        latest = await self._latest(key)
        if latest is not None:
            if not latest.is_deleted:
                raise KeyExistsError(
                    f"create key {key!r} in bucket {self._bucket!r}: it has a value (revision "
                    f"{latest.revision}). Use `update` with that revision, or `put`"
                ) from refusal
            try:
                return await self._write(key, data, latest.revision, ttl=ttl)
            except WrongLastSequenceError as error:
                refusal = error
        raise KeyExistsError(
            f"create key {key!r} in bucket {self._bucket!r}: somebody else wrote it meanwhile"
        ) from refusal

    async def update(self, key: str, value: Any, revision: int) -> int:
        """Store `value` if `revision` is the key's latest (0: it has none); the new revision.

        Raises `RevisionMismatchError`.
        """
        try:
            return await self._write(key, encode(value, self._codec), revision)
        except WrongLastSequenceError as error:
            raise self._mismatch("update", key, revision, error) from error

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete `key`, leaving a marker and its history; only if `revision` is its latest.

        Raises `RevisionMismatchError`. Deleting what does not exist is no error.
        """
        headers = {"KV-Operation": Operation.DELETE.value}
        try:
            await self._write(key, b"", revision, headers=headers)
        except WrongLastSequenceError as error:
            raise self._mismatch("delete", key, revision, error) from error

    async def purge(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: "float | timedelta | None" = None,
    ) -> None:
        """Delete `key` with its history; the marker itself goes after `ttl` seconds if given.

        Raises `RevisionMismatchError`, and `BucketOptionError` as `create` does.
        """
        headers = {"KV-Operation": Operation.PURGE.value, NATS_ROLLUP: "sub"}
        try:
            await self._write(key, b"", revision, ttl=ttl, headers=headers)
        except WrongLastSequenceError as error:
            raise self._mismatch("purge", key, revision, error) from error

    async def _write(
        self,
        key: str,
        data: bytes,
        revision: int | None,
        *,
        ttl: "float | timedelta | None" = None,
        headers: dict[str, str] | None = None,
    ) -> int:
        options: dict[str, Any] = {}
        if revision is not None:
            options["expected_last_sequence_per_subject"] = revision
        if ttl is not None:
            options["ttl"] = ttl
        try:
            ack = await self._js.publish(self._to(key), data, headers=headers, **options)
        except ApiError as error:
            if error.err_code != ErrorCode.MESSAGE_TTL_DISABLED:
                raise
            raise BucketOptionError(
                f"key {key!r} with ttl={ttl}: bucket {self._bucket!r} has no limit_marker_ttl. "
                "Give it one with `update_key_value`"
            ) from error
        return ack.sequence

    # -- reading -------------------------------------------------------------------------------

    async def get(self, key: str, *, revision: int | None = None) -> "KeyValueEntry[Value_co]":
        """The latest entry of `key`, or the one of a `revision`.

        Raises `KeyNotFoundError`; the more special `KeyDeletedError` if that entry is a delete.
        """
        entry = await self.entry(key, revision=revision)
        if entry is None:
            of = "" if revision is None else f" of revision {revision}"
            raise KeyNotFoundError(
                f"get key {key!r}{of} from bucket {self._bucket!r}: there is none"
            )
        if entry.is_deleted:
            raise KeyDeletedError(
                f"get key {key!r} from bucket {self._bucket!r}: it was deleted by revision "
                f"{entry.revision}",
                entry.revision,
            )
        return cast("KeyValueEntry[Value_co]", entry)  # one that has a value

    @overload
    async def get_value(self, key: str) -> Value_co | None: ...
    @overload
    async def get_value(self, key: str, default: D) -> Value_co | D: ...
    async def get_value(self, key: str, default: object = None) -> object:
        """The latest value of `key`, or `default` if it has none."""
        entry = await self._latest(key)
        return default if entry is None or entry.is_deleted else entry.value

    async def entry(
        self, key: str, *, revision: int | None = None
    ) -> "KeyValueEntry[Value_co | None] | None":
        """As `get`, without its errors: a delete is an entry too, None means no entry."""
        if revision is None:
            return await self._latest(key)
        return await self._at(key, revision)

    async def _latest(self, key: str) -> "KeyValueEntry[Value_co | None] | None":
        try:
            found = await last_message(self._js, self._stream, self._from(key), self._is_direct)
        except StreamNotFoundError as error:
            raise self._is_gone() from error
        return None if found is None else self._entry(found, key)

    async def _at(self, key: str, revision: int) -> "KeyValueEntry[Value_co | None] | None":
        try:
            found = await message_at(self._js, self._stream, revision, self._is_direct)
        except StreamNotFoundError as error:
            raise self._is_gone() from error
        if found is None or found.subject != self._from(key):
            return None
        return self._entry(found, key)

    def _entry(self, message: Found, key: str) -> "KeyValueEntry[Value_co | None]":
        return KeyValueEntry(
            bucket=self._bucket,
            key=key,
            data=message.data,
            revision=message.sequence,
            created_ns=message.timestamp_ns,
            operation=operation_of(message.header),
            kind=self._kind,
        )

    # -- many at once --------------------------------------------------------------------------

    async def watch(
        self,
        keys: str | Iterable[str] = ">",
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from: int = 0,
        heartbeat: "float | timedelta" = HEARTBEAT_SECONDS,
    ) -> "Watch[Value_co]":
        """Entries of the `keys` (a key, a pattern or several) as they are, then as they change.

        The watch yields the latest entry of each key, then None once (all initial values are
        given), then every change, until it is stopped. `include_history` begins with all kept
        entries, `updates_only` with none, `resume_from` with those from a revision on;
        `ignore_deletes` leaves deletes and purges out, `meta_only` the values. A server that is
        silent for twice `heartbeat` seconds is asked anew.

            async with await kv.watch("orders.*") as watch:
                async for entry in watch: ...

        Raises `InvalidKeyError`, `BucketNotFoundError`.
        """
        options = WatchOptions(
            include_history=include_history,
            updates_only=updates_only,
            ignore_deletes=ignore_deletes,
            meta_only=meta_only,
            resume_from=resume_from,
            heartbeat=to_seconds(heartbeat, "heartbeat"),
        )
        patterns = [keys] if isinstance(keys, str) else list(keys)
        if not patterns:
            raise BucketOptionError("watch: no keys were given; leave them out to watch all")
        checked = [check_pattern(self._keys.encode_filter(pattern)) for pattern in patterns]
        watch: Watch[Value_co] = Watch(
            self._js,
            stream=self._stream,
            bucket=self._bucket,
            prefix=self._pre,
            patterns=checked,
            options=options,
            key_codec=self._keys,
            kind=self._kind,
        )
        try:
            await watch.start()
        except StreamNotFoundError as error:
            raise self._is_gone() from error
        return watch

    async def keys(self, filters: str | Iterable[str] = ">") -> list[str]:
        """The keys that have a value, sorted; the server applies the `filters` (patterns)."""
        return sorted([key async for key in self.iterate_keys(filters)])

    async def iterate_keys(self, filters: str | Iterable[str] = ">") -> AsyncIterator[str]:
        """The keys that have a value, one by one, each once; for buckets with very many."""
        seen: set[str] = set()
        watch = await self.watch(filters, ignore_deletes=True, meta_only=True)
        async with watch:
            async for entry in watch:
                if entry is None:
                    return
                if entry.key not in seen:
                    seen.add(entry.key)
                    yield entry.key

    async def history(self, key: str) -> "list[KeyValueEntry[Value_co | None]]":
        """All kept entries of `key`, the oldest first. Raises `KeyNotFoundError` if there is none.

        `key` may be a pattern: then of all keys that match, in the order in which they came.
        """
        entries: list[KeyValueEntry[Value_co | None]] = []
        async with await self.watch(key, include_history=True) as watch:
            async for entry in watch:
                if entry is None:
                    break
                entries.append(entry)
        if not entries:
            raise KeyNotFoundError(
                f"history of key {key!r} in bucket {self._bucket!r}: there is none"
            )
        return entries

    async def purge_deletes(self, older_than: "float | timedelta" = MARKERS_KEPT_SECONDS) -> int:
        """Remove deleted keys for good; the number of keys.

        A marker younger than `older_than` seconds stays (its key's history goes), so that those
        who watch can still learn of the delete; a negative time removes all of them.
        """
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        deleted: list[KeyValueEntry[Value_co | None]] = []
        async with await self.watch(meta_only=True) as watch:
            async for entry in watch:
                if entry is None:
                    break
                if entry.is_deleted:
                    deleted.append(entry)
        limit_ns = time_ns() - int(seconds * 1e9)
        stream = await self._js.stream(self._stream)
        for entry in deleted:
            stays = seconds >= 0 and entry.created_ns > limit_ns
            # By sequence: a value that was put after the marker meanwhile is not lost.
            behind = entry.revision if stays else entry.revision + 1
            await stream.purge(filter=self._from(entry.key), sequence=behind)
        return len(deleted)

    # -- names ---------------------------------------------------------------------------------

    def _from(self, key: str) -> str:
        """The subject that a key is read from."""
        return self._pre + check_key(self._keys.encode(key))

    def _to(self, key: str) -> str:
        """The subject that a key is written to."""
        return self._put_pre + check_key(self._keys.encode(key))

    def _is_gone(self) -> BucketNotFoundError:
        return BucketNotFoundError(f"bucket {self._bucket!r}: it does not exist (any more)")

    def _mismatch(
        self, what: str, key: str, revision: int | None, error: WrongLastSequenceError
    ) -> RevisionMismatchError:
        latest = error.last_sequence
        said = "a write is under way" if latest is None else f"the latest is {latest}"
        return RevisionMismatchError(
            f"{what} key {key!r} in bucket {self._bucket!r}: revision {revision} was expected, "
            f"{said}. Get the key and decide again"
        )


_ALL_SUBJECTS = "$KV.*.>"
MARKER_API_LEVEL = 1
"""The level of the server's API from which on it knows markers and TTLs (nats-server 2.11)."""


def config_of(config: "KeyValueConfig | str | None", options: "KeyValueKeywords") -> KeyValueConfig:
    """The configuration given as an object, or as a name and options."""
    if isinstance(config, KeyValueConfig):
        if options:
            raise BucketOptionError("give a KeyValueConfig or options, not both")
        return config
    if unknown := options.keys() - set(KeyValueConfig.__struct_fields__):
        known = KeyValueConfig.__struct_fields__
        raise TypeError(unknown_name("a key-value bucket", "option", unknown, known))
    if config is not None:
        options.setdefault("bucket", config)
    if "bucket" not in options:
        raise TypeError("a key-value bucket needs a name: give it first, or a KeyValueConfig")
    return KeyValueConfig(**options)


async def open_bucket(
    js: "JetStream", bucket: str, *, type: Any = None, key_codec: KeyCodec | None = None
) -> KeyValue:
    """A bucket that exists. Raises `BucketNotFoundError`, `BadBucketError`."""
    name = STREAM_PREFIX + check_bucket(bucket)
    try:
        stream = await js.stream(name)
    except StreamNotFoundError as error:
        raise BucketNotFoundError(
            f"bucket {bucket!r}: there is none. Make it with `create_key_value`"
        ) from error
    info = stream.cached_info
    if info.config.max_msgs_per_subject < 1:
        raise BadBucketError(
            f"bucket {bucket!r}: stream {name!r} has no bound on messages per subject, so it is "
            "not a key-value bucket"
        )
    return KeyValue(js, info, type=type, key_codec=key_codec)


async def create_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """A new bucket, or the one that exists with this configuration.

    Raises `BucketExistsError`, `BucketOptionError`, `InvalidBucketNameError`.
    """
    wanted = await _checked(js, config)
    try:
        stream = await js.create_stream(wanted)
        return KeyValue(js, stream.cached_info, type=type, key_codec=key_codec)
    except StreamExistsError as error:
        info = await _modernised(js, wanted)
        if info is None:
            raise BucketExistsError(
                f"create bucket {config.bucket!r}: it exists with another configuration. Use "
                "`key_value` to open it, `update_key_value` to change it"
            ) from error
    return KeyValue(js, info, type=type, key_codec=key_codec)


async def _checked(js: "JetStream", config: KeyValueConfig) -> "StreamConfig":
    wanted = stream_config(config)
    if config.limit_marker_ttl:
        account = await js.account_info()
        if account.api.level < MARKER_API_LEVEL:
            raise BucketOptionError(
                f"bucket {config.bucket!r}: this server knows no limit_marker_ttl; it needs "
                "nats-server 2.11 or newer"
            )
    return wanted


async def _modernised(js: "JetStream", wanted: "StreamConfig") -> "StreamInfo | None":
    """The bucket of that name, if only what other clients set otherwise differs; brought up to
    date: old ones knew no direct gets, nats-py always allows TTLs (which is for good)."""
    stream = await js.stream(wanted.name)
    there = stream.cached_info.config
    changed = there.replace(discard=wanted.discard, allow_direct=wanted.allow_direct)
    accepted = wanted.replace(allow_msg_ttl=wanted.allow_msg_ttl or there.allow_msg_ttl)
    if changed == there and accepted == wanted:
        return None
    if changed != there:
        await js.update_stream(changed)
    try:
        return (await js.create_stream(accepted)).cached_info
    except StreamExistsError:
        if changed != there:
            await js.update_stream(there)  # something else differs too: leave it as it was
        return None


async def update_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """Change a bucket's configuration. Raises `BucketNotFoundError`, `BucketOptionError`."""
    wanted = await _checked(js, config)
    try:
        stream = await js.update_stream(wanted)
    except StreamNotFoundError as error:
        raise BucketNotFoundError(
            f"update bucket {config.bucket!r}: there is none. Make it with `create_key_value`"
        ) from error
    return KeyValue(js, stream.cached_info, type=type, key_codec=key_codec)


async def create_or_update_bucket(
    js: "JetStream",
    config: KeyValueConfig,
    *,
    type: Any = None,
    key_codec: KeyCodec | None = None,
) -> KeyValue:
    """A bucket with this configuration, whether there was one or not."""
    try:
        return await update_bucket(js, config, type=type, key_codec=key_codec)
    except BucketNotFoundError:
        return await create_bucket(js, config, type=type, key_codec=key_codec)


async def delete_bucket(js: "JetStream", bucket: str) -> None:
    """Remove a bucket and all its values. Raises `BucketNotFoundError`."""
    try:
        await js.delete_stream(STREAM_PREFIX + check_bucket(bucket))
    except StreamNotFoundError as error:
        raise BucketNotFoundError(f"delete bucket {bucket!r}: there is none") from error


async def bucket_names(js: "JetStream") -> AsyncIterator[str]:
    """The names of all buckets, page by page."""
    async for name in js.stream_names(subject=_ALL_SUBJECTS):
        if name.startswith(STREAM_PREFIX):
            yield name.removeprefix(STREAM_PREFIX)


async def bucket_statuses(js: "JetStream") -> AsyncIterator[KeyValueStatus]:
    """The status of every bucket, page by page."""
    async for info in js.streams(subject=_ALL_SUBJECTS):
        if info.config.name.startswith(STREAM_PREFIX):
            yield KeyValueStatus(info.config.name.removeprefix(STREAM_PREFIX), info)
