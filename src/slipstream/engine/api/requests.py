"""The bodies of API requests."""

from typing import Any, TypeVar

import msgspec

from slipstream.engine.api.dispatch import Request
from slipstream.engine.protocol.json_body import convert, decode

T = TypeVar("T")


class PageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Lists of consumers."""

    offset: int = 0


class StreamPageRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Lists of streams."""

    offset: int = 0
    subject: str = ""


class StreamInfoRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.INFO."""

    offset: int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class PurgeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.PURGE."""

    seq: int = 0
    filter: str = ""
    keep: int = 0


class DeleteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.MSG.DELETE."""

    seq: int = 0
    no_erase: bool = False


class GetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.MSG.GET."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str = ""
    batch: int = 0
    max_bytes: int = 0
    no_hdr: bool = False
    multi_last: list[str] = []
    up_to_seq: int = 0
    up_to_time: str = ""


class SnapshotRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.SNAPSHOT."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: int = 0
    window_size: int = 0
    jsck: bool = False


class RestoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.RESTORE."""

    config: dict[str, Any] = {}
    state: dict[str, Any] = {}


class PauseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """CONSUMER.PAUSE."""

    pause_until: str = ""


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """CONSUMER.RESET, read by `read_lenient`."""

    seq: int = 0


def read_body(request: Request, into: type[T]) -> T:
    """The request's JSON. Raises `ApiError` INVALID_JSON."""
    found: T = convert(decode(request.body), into, {}, request.strict)
    return found


def read_optional(request: Request, into: type[T]) -> T:
    """The request's JSON, or the defaults where there is none. Raises `ApiError` INVALID_JSON."""
    if not request.has_json:
        return into()
    return read_body(request, into)
