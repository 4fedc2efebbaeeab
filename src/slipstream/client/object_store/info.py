"""What describes objects and stores: `ObjectInfo`, `ObjectStoreConfig`, `ObjectStoreStatus`.

An object's chunks are messages on ``$O.<store>.C.<nuid>``; its info is the last message on
``$O.<store>.M.<name in base64>``, a JSON document that other NATS clients read too
(docs/protocol/buckets.md#object-stores).
"""

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from slipstream.client.object_store.errors import (
    BadObjectError,
    BadObjectInfoError,
    InvalidStoreNameError,
)
from slipstream.model.configurations import Placement, StreamConfig, owners_metadata
from slipstream.model.documents import Seconds
from slipstream.model.durations import to_seconds
from slipstream.model.infos import StreamInfo
from slipstream.model.policies import Storage
from slipstream.model.times import Timestamp, utc_text

STREAM_PREFIX = "OBJ_"
CHUNK_BYTES = 128 * 1024
DIGEST_PREFIX = "SHA-256="
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class ObjectStoreConfig(msgspec.Struct, kw_only=True):
    """A store's configuration: sizes in bytes, times in seconds, -1 is no bound."""

    bucket: str
    description: str = ""
    ttl: Seconds = 0.0
    max_bytes: int = -1
    storage: Storage = "file"
    num_replicas: int = 1
    placement: Placement | None = None
    compression: bool = False
    metadata: dict[str, str] = {}


class ObjectLink(msgspec.Struct, omit_defaults=True, frozen=True):
    """Where a link leads: to an object, or, without `name`, to a whole store."""

    bucket: str
    name: str = ""


class ObjectOptions(msgspec.Struct, omit_defaults=True):
    """How an object is stored."""

    link: ObjectLink | None = None
    max_chunk_size: int = 0


class ObjectInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An object as it is stored. `size` is in bytes, `digest` is ``SHA-256=...``.

    `modified` is when it was stored (UTC). `metadata` and `headers` are the owner's.
    """

    name: str
    description: str = ""
    headers: dict[str, list[str]] = {}
    metadata: dict[str, str] = {}
    options: ObjectOptions | None = None
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    mtime: str = "0001-01-01T00:00:00Z"
    chunks: int = 0
    digest: str = ""
    deleted: bool = False

    @property
    def modified(self) -> datetime | None:
        """When it was stored, in UTC."""
        return Timestamp.parse(self.mtime)

    @property
    def link(self) -> ObjectLink | None:
        """Where it leads, if it is a link."""
        return self.options.link if self.options is not None else None

    @property
    def is_link(self) -> bool:
        """Whether it is a link."""
        return self.link is not None


class ObjectStoreStatus:
    """What a store is and holds at a moment."""

    def __init__(self, bucket: str, info: StreamInfo) -> None:
        self.bucket = bucket
        self.stream_info = info

    @property
    def size(self) -> int:
        """Bytes kept, as the stream counts them."""
        return self.stream_info.state.bytes

    @property
    def description(self) -> str:
        """What the store is for."""
        return self.stream_info.config.description

    @property
    def ttl(self) -> float:
        """Seconds until an object expires; 0 for never."""
        return to_seconds(self.stream_info.config.max_age, "max_age")

    @property
    def storage(self) -> str:
        """`file` or `memory`."""
        return self.stream_info.config.storage

    @property
    def replicas(self) -> int:
        """How many servers keep it."""
        return self.stream_info.config.num_replicas

    @property
    def is_sealed(self) -> bool:
        """Whether it can no longer be changed."""
        return self.stream_info.config.sealed

    @property
    def is_compressed(self) -> bool:
        """Whether it is compressed on disk."""
        return self.stream_info.config.compression != "none"

    @property
    def metadata(self) -> dict[str, str]:
        """The store's metadata."""
        return self.stream_info.config.metadata

    @property
    def config(self) -> ObjectStoreConfig:
        """The configuration: what an update takes, changed with `msgspec.structs.replace`."""
        stream = self.stream_info.config
        return ObjectStoreConfig(
            bucket=self.bucket,
            description=stream.description,
            ttl=stream.max_age,
            max_bytes=stream.max_bytes,
            storage=stream.storage,
            num_replicas=stream.num_replicas,
            placement=stream.placement,
            compression=self.is_compressed,
            metadata=owners_metadata(stream),
        )

    @property
    def backing_store(self) -> str:
        """Always `JetStream`."""
        return "JetStream"

    def __repr__(self) -> str:
        return f"ObjectStoreStatus({self.bucket!r}, size={self.size}, sealed={self.is_sealed})"


def check_store(bucket: str) -> str:
    """`bucket`, or `InvalidStoreNameError`."""
    if not _NAME.fullmatch(bucket):
        raise InvalidStoreNameError(
            f"object store {bucket!r}: a name has at least one of letters, digits, - and _, and "
            "nothing else"
        )
    return bucket


def stream_config(config: ObjectStoreConfig) -> StreamConfig:
    """The stream behind a store."""
    bucket = check_store(config.bucket)
    return StreamConfig(
        name=STREAM_PREFIX + bucket,
        description=config.description,
        subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        max_age=config.ttl,
        max_bytes=config.max_bytes,
        storage=config.storage,
        num_replicas=config.num_replicas,
        placement=config.placement,
        compression="s2" if config.compression else "none",
        metadata=dict(config.metadata),
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
    )


def meta_subject(bucket: str, name: str) -> str:
    """Where the info of an object is; raises `BadObjectError` for an empty name."""
    if not name:
        raise BadObjectError(f"object store {bucket!r}: an object needs a name")
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def chunk_subject(bucket: str, nuid: str) -> str:
    """Where the chunks of one version of an object are."""
    return f"$O.{bucket}.C.{nuid}"


def digest_text(raw: bytes) -> str:
    """A SHA-256 as infos have it."""
    return DIGEST_PREFIX + base64.urlsafe_b64encode(raw).decode()


def same_digest(stored: str, raw: bytes) -> bool:
    """Whether a digest of an info stands for `raw`; its algorithm in any case, padding or none."""
    algorithm, _, text = stored.partition("=")
    if algorithm.upper() != "SHA-256":
        return False
    return text.rstrip("=") == base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_info(data: bytes, timestamp_ns: int) -> ObjectInfo:
    """The info in a meta message, which was stored at `timestamp_ns`.

    Raises `BadObjectInfoError`.
    """
    try:
        raw: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        # Go writes null for empty maps; what is null counts as absent.
        raw = {name: value for name, value in raw.items() if value is not None}
        if "headers" in raw:
            raw["headers"] = multi_map(raw["headers"])  # nats-py writes text for lists of one
        info = msgspec.convert(raw, ObjectInfo)
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError) as error:
        raise BadObjectInfoError(
            f"what describes an object cannot be read: {error}. It was written by something that "
            "is no object store"
        ) from error
    info.mtime = utc_text(timestamp_ns)
    return info


def multi_map(headers: "Mapping[str, str | list[str]]") -> dict[str, list[str]]:
    """Headers with a list of values each; text stands for a list of one."""
    return {
        name: [value] if isinstance(value, str) else list(value) for name, value in headers.items()
    }


def write_info(info: ObjectInfo) -> bytes:
    """The body of a meta message: the time is left to the stream."""
    return msgspec.json.encode(
        {**msgspec.to_builtins(info), "mtime": "0001-01-01T00:00:00Z", "size": info.size}
        | {"bucket": info.bucket, "nuid": info.nuid, "chunks": info.chunks}
    )
