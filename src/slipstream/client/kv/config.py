"""Key-value buckets: their configuration, status, and which names and keys they take.

A `KeyValueConfig` becomes a stream (docs/protocol/buckets.md#configuration-of-a-key-value-bucket).
A key may hold letters, digits and ``-/_=.`` only, and its tokens are what stands between dots. A
key codec (ADR-54, docs/protocol/buckets.md#codecs-of-keys) writes an application's keys in this
alphabet. It works token by token, so that a watch on ``orders.*`` still means what it says:
`encode_filter` leaves the wildcards alone. A codec is given where a bucket is opened:

    kv = await js.key_value("people", key_codec=Base64Keys())
    await kv.put("Åsa@home", ...)         # stored as w4VzYUBob21l
"""

import base64
import binascii
import re
from typing import Any, Protocol, runtime_checkable

import msgspec

from slipstream.client.kv.errors import BucketOptionError, InvalidBucketNameError, InvalidKeyError
from slipstream.model.configurations import (
    Placement,
    Republish,
    StreamConfig,
    StreamSource,
    SubjectTransform,
    owners_metadata,
)
from slipstream.model.documents import Seconds
from slipstream.model.durations import to_seconds
from slipstream.model.infos import StreamInfo
from slipstream.model.policies import Storage

STREAM_PREFIX = "KV_"
SUBJECT_PREFIX = "$KV."
HISTORY_MAX = 64
DUPLICATE_WINDOW_MAX = 120.0

_BUCKET = re.compile(r"[a-zA-Z0-9_-]+")
_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")
_PATTERN = re.compile(r"[-/_=.a-zA-Z0-9*]*>?")


class KeyValueConfig(msgspec.Struct, kw_only=True):
    """A bucket's configuration: sizes in bytes, times in seconds, -1 is no bound.

    `history` values are kept for each key (1 to 64). Values older than `ttl` expire. With
    `limit_marker_ttl` (1 second or more) keys may have a TTL of their own, and what expires leaves
    a marker for that long, so that watches see it. A bucket with `mirror` is a copy of another.
    """

    bucket: str
    description: str = ""
    history: int = 1
    ttl: Seconds = 0.0
    max_value_size: int = -1
    max_bytes: int = -1
    storage: Storage = "file"
    num_replicas: int = 1
    placement: Placement | None = None
    republish: Republish | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: bool = False
    limit_marker_ttl: Seconds = 0.0
    metadata: dict[str, str] = {}


class KeyValueStatus:
    """What a bucket is and holds at a moment: its configuration's parts and its stream's counts."""

    def __init__(self, bucket: str, info: StreamInfo) -> None:
        self.bucket = bucket
        self.stream_info = info

    @property
    def values(self) -> int:
        """Entries kept, with history and delete markers."""
        return self.stream_info.state.messages

    @property
    def bytes(self) -> int:
        """Their size as the stream counts it."""
        return self.stream_info.state.bytes

    @property
    def history(self) -> int:
        """Values kept for each key."""
        return self.stream_info.config.max_msgs_per_subject

    @property
    def ttl(self) -> float:
        """Seconds until a value expires; 0 for never."""
        return to_seconds(self.stream_info.config.max_age, "max_age")

    @property
    def limit_marker_ttl(self) -> float:
        """Seconds that the marker of an expired key stays; 0 if there are none."""
        return to_seconds(self.stream_info.config.subject_delete_marker_ttl, "limit_marker_ttl")

    @property
    def is_compressed(self) -> bool:
        """Whether the bucket is compressed on disk."""
        return self.stream_info.config.compression != "none"

    @property
    def metadata(self) -> dict[str, str]:
        """The bucket's metadata."""
        return self.stream_info.config.metadata

    @property
    def config(self) -> KeyValueConfig:
        """The configuration: what an update takes, changed with `msgspec.structs.replace`."""
        stream = self.stream_info.config
        return KeyValueConfig(
            bucket=self.bucket,
            description=stream.description,
            history=self.history,
            ttl=stream.max_age,
            max_value_size=stream.max_msg_size,
            max_bytes=stream.max_bytes,
            storage=stream.storage,
            num_replicas=stream.num_replicas,
            placement=stream.placement,
            republish=stream.republish,
            mirror=stream.mirror,
            sources=list(stream.sources),
            compression=self.is_compressed,
            limit_marker_ttl=stream.subject_delete_marker_ttl,
            metadata=owners_metadata(stream),
        )

    @property
    def backing_store(self) -> str:
        """Always `JetStream`."""
        return "JetStream"

    def __repr__(self) -> str:
        return (
            f"KeyValueStatus({self.bucket!r}, values={self.values}, bytes={self.bytes}, "
            f"history={self.history}, ttl={self.ttl})"
        )


def check_bucket(bucket: str) -> str:
    """`bucket`, or `InvalidBucketNameError`."""
    if not _BUCKET.fullmatch(bucket):
        raise InvalidBucketNameError(
            f"bucket {bucket!r}: a name has at least one of letters, digits, - and _, and nothing "
            "else"
        )
    return bucket


def check_key(key: str) -> str:
    """`key`, or `InvalidKeyError`."""
    if not _KEY.fullmatch(key) or key[0] == "." or key[-1] == "." or ".." in key:
        raise InvalidKeyError(
            f"key {key!r}: a key has letters, digits and -/_=. only, no dot at its ends and none "
            "beside another. Open the bucket with key_codec=Base64Keys() to use any text"
        )
    return key


def check_pattern(pattern: str) -> str:
    """`pattern`, which may have the wildcards * and >, or `InvalidKeyError`."""
    wrong = not pattern or not _PATTERN.fullmatch(pattern)
    if wrong or pattern[0] == "." or pattern[-1] == "." or ".." in pattern:
        raise InvalidKeyError(
            f"keys {pattern!r}: a pattern is a key in which * stands for one token and > at the "
            "end for all that follow"
        )
    return pattern


def stream_config(config: KeyValueConfig) -> StreamConfig:
    """The stream behind a bucket; raises `BucketOptionError` for options that cannot be."""
    bucket = check_bucket(config.bucket)
    if not 1 <= config.history <= HISTORY_MAX:
        raise BucketOptionError(
            f"bucket {bucket!r}: history={config.history}, but a bucket keeps 1 to {HISTORY_MAX} "
            "values of a key. For more, use a stream"
        )
    marker_ttl = to_seconds(config.limit_marker_ttl, "limit_marker_ttl")
    if marker_ttl and marker_ttl < 1:
        raise BucketOptionError(
            f"bucket {bucket!r}: limit_marker_ttl={marker_ttl} s; a marker stays 1 s or more"
        )
    ttl = to_seconds(config.ttl, "ttl")
    options: dict[str, Any] = {}
    if config.mirror is not None:
        options["mirror"] = _with_stream_name(config.mirror)
        options["mirror_direct"] = True
    else:
        options["subjects"] = [f"{SUBJECT_PREFIX}{bucket}.>"]
        options["sources"] = [_source(source, bucket) for source in config.sources]
        options["duplicate_window"] = min(ttl or DUPLICATE_WINDOW_MAX, DUPLICATE_WINDOW_MAX)
    if marker_ttl:
        options["allow_msg_ttl"] = True
        options["subject_delete_marker_ttl"] = marker_ttl
    return StreamConfig(
        name=STREAM_PREFIX + bucket,
        description=config.description,
        max_msgs_per_subject=config.history,
        max_age=ttl,
        max_msg_size=config.max_value_size,
        max_bytes=config.max_bytes,
        storage=config.storage,
        num_replicas=config.num_replicas,
        placement=config.placement,
        republish=config.republish,
        compression="s2" if config.compression else "none",
        metadata=dict(config.metadata),
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        **options,
    )


def _with_stream_name(source: StreamSource) -> StreamSource:
    if source.name.startswith(STREAM_PREFIX):
        return source
    return source.replace(name=STREAM_PREFIX + source.name)


def _source(source: StreamSource, bucket: str) -> StreamSource:
    """A bucket as a source: its keys become keys of this bucket, unless transforms say else."""
    if source.subject_transforms:
        return source
    named = _with_stream_name(source)
    origin = named.name.removeprefix(STREAM_PREFIX)
    if named.external is not None and origin == bucket:
        return named
    transform = SubjectTransform(
        src=f"{SUBJECT_PREFIX}{origin}.>", dest=f"{SUBJECT_PREFIX}{bucket}.>"
    )
    return named.replace(subject_transforms=[transform])


_WILDCARDS = ("*", ">")


@runtime_checkable
class KeyCodec(Protocol):
    """What turns an application's keys into stored ones and back."""

    def encode(self, key: str) -> str:
        """The stored key of `key`."""
        ...

    def decode(self, key: str) -> str:
        """The application's key behind the stored one."""
        ...

    def encode_filter(self, pattern: str) -> str:
        """The stored form of a pattern: its wildcards still match what they should."""
        ...


class PlainKeys:
    """Keys as they are."""

    def encode(self, key: str) -> str:
        return key

    def decode(self, key: str) -> str:
        return key

    def encode_filter(self, pattern: str) -> str:
        return pattern


class Base64Keys:
    """Each token in base64 (URL alphabet, no padding): any text can be a key."""

    def encode(self, key: str) -> str:
        return ".".join(self._encode_token(token) for token in key.split("."))

    def decode(self, key: str) -> str:
        return ".".join(self._decode_token(token) for token in key.split("."))

    def encode_filter(self, pattern: str) -> str:
        tokens = pattern.split(".")
        return ".".join(t if t in _WILDCARDS else self._encode_token(t) for t in tokens)

    def _encode_token(self, token: str) -> str:
        return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()

    def _decode_token(self, token: str) -> str:
        try:
            return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidKeyError(
                f"the stored key token {token!r} is not base64 of UTF-8 text ({error}): it was "
                "written without this codec"
            ) from error


class PathKeys:
    """Keys as paths: ``/etc/app/port`` is stored as ``_root_.etc.app.port``.

    A leading slash becomes the token ``_root_``, a trailing one is dropped.
    """

    ROOT = "_root_"

    def encode(self, key: str) -> str:
        path = key.rstrip("/") if key != "/" else key
        if path.startswith("/"):
            rest = path[1:]
            path = f"{self.ROOT}/{rest}" if rest else self.ROOT
        return path.replace("/", ".")

    def decode(self, key: str) -> str:
        path = key.replace(".", "/")
        if path == self.ROOT:
            return "/"
        if path.startswith(self.ROOT + "/"):
            return path[len(self.ROOT) :]
        return path

    def encode_filter(self, pattern: str) -> str:
        return self.encode(pattern)


class ChainedKeys:
    """Several codecs, the first applied first: ``ChainedKeys(PathKeys(), Base64Keys())``."""

    def __init__(self, *codecs: KeyCodec) -> None:
        if not codecs:
            raise ValueError("a chain of key codecs needs at least one")
        self._codecs = codecs

    def encode(self, key: str) -> str:
        for codec in self._codecs:
            key = codec.encode(key)
        return key

    def decode(self, key: str) -> str:
        for codec in reversed(self._codecs):
            key = codec.decode(key)
        return key

    def encode_filter(self, pattern: str) -> str:
        for codec in self._codecs:
            pattern = codec.encode_filter(pattern)
        return pattern
