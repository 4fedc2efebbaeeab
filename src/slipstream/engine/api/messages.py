"""The calls that read, delete and purge messages of a stream
(docs/protocol/streams.md#reading-a-message)."""

import base64
from typing import TYPE_CHECKING, Any

from slipstream.engine.api.dispatch import Fields, Operation, Request, WhenDurable
from slipstream.engine.api.requests import (
    DeleteRequest,
    GetRequest,
    PurgeRequest,
    read_body,
    read_optional,
)
from slipstream.engine.protocol.errors import ApiError, bad_json
from slipstream.engine.protocol.json_body import FIRST_SEQ_MAX
from slipstream.engine.stream.direct_get import DirectRequest, find_message, is_contradictory
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.stream.stream import Stream


def get(js: "JetStream", request: Request) -> Fields | WhenDurable:
    """STREAM.MSG.GET: one message by sequence, subject or time; answered once it is durable."""
    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    asked = read_body(request, GetRequest)
    wanted = DirectRequest(
        seq=asked.seq,
        last_by_subj=asked.last_by_subj,
        next_by_subj=asked.next_by_subj,
        start_time=asked.start_time or None,
    )
    if asked.batch > 0 or asked.max_bytes > 0 or not wanted.says_which or is_contradictory(wanted):
        raise ApiError(ErrorCode.BAD_REQUEST)
    stream = js.find(request.tokens[0])
    record = Record()
    found = find_message(stream.log, wanted, record)
    if not found or (stream.is_settled and record.seq > stream.readable_seq):
        return _refused(stream, ApiError(ErrorCode.NO_MESSAGE_FOUND))
    message: dict[str, Any] = {
        "subject": record.subject.decode("utf-8", "replace"),
        "seq": record.seq,
    }
    if record.body_start > record.header_start and not asked.no_hdr:
        message["hdrs"] = base64.b64encode(record.header()).decode()
    if record.end > record.body_start:
        message["data"] = base64.b64encode(record.body()).decode()
    message["time"] = time_text(record.ts)
    is_one = bool(wanted.seq) and not wanted.next_by_subj
    if stream.is_settled or (is_one and record.seq <= stream.readable_seq):
        return {"message": message}  # that one is durable, whatever else is on its way
    return WhenDurable(
        stream.when_settled, {"message": message}, failure=ErrorCode.STREAM_STORE_FAILED
    )


def _refused(stream: "Stream", error: ApiError) -> WhenDurable:
    """There is no such message: answered once that is so for good, at once by raising it. Else a
    crash may bring it back, or another server that leads a group."""
    if stream.is_settled:
        raise error
    return WhenDurable(stream.when_settled, {}, ErrorCode.STREAM_STORE_FAILED, error)


def delete(js: "JetStream", request: Request) -> WhenDurable:
    """STREAM.MSG.DELETE: with the bytes on disk, unless asked not to."""
    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    asked = read_body(request, DeleteRequest)
    stream = js.find(request.tokens[0])
    if stream.config.sealed:
        raise ApiError(ErrorCode.STREAM_SEALED)
    if stream.config.deny_delete:
        raise ApiError(ErrorCode.STREAM_MSG_DELETE_FAILED, err="message delete not permitted")
    if stream.failed:  # nothing could tell that it is gone
        raise ApiError(ErrorCode.STREAM_MSG_DELETE_FAILED, err=stream.failed)
    in_memory = stream.config.storage == "memory"
    if asked.seq > stream.log.last_seq and not in_memory:
        raise ApiError(ErrorCode.STREAM_MSG_DELETE_FAILED, err="stream store EOF")
    try:
        removed = stream.remove_message(asked.seq, not asked.no_erase)
    except StorageError as error:
        raise ApiError(ErrorCode.STREAM_MSG_DELETE_FAILED, err=str(error)) from error
    if not removed and asked.seq < stream.log.first_seq and not in_memory:
        gone = ApiError(ErrorCode.STREAM_MSG_DELETE_FAILED, err="no message found")
        return _refused(stream, gone)
    if not removed:
        return _refused(stream, ApiError(ErrorCode.SEQUENCE_NOT_FOUND, seq=asked.seq))
    return WhenDurable(
        stream.when_durable, {"success": True}, failure=ErrorCode.STREAM_MSG_DELETE_FAILED
    )


def purge(js: "JetStream", request: Request) -> WhenDurable:
    """STREAM.PURGE: everything, below a sequence, by subject, or all but the newest."""
    asked = read_optional(request, PurgeRequest)
    if asked.seq and asked.keep:
        raise ApiError(ErrorCode.BAD_REQUEST)
    if asked.seq > FIRST_SEQ_MAX:
        raise bad_json(f"{asked.seq} is no sequence that a stream could begin with")
    stream = js.find(request.tokens[0])
    if stream.config.sealed:
        raise ApiError(ErrorCode.STREAM_SEALED)
    if stream.config.deny_purge:
        raise ApiError(ErrorCode.STREAM_PURGE_FAILED, err="stream purge not permitted")
    patterns = (asked.filter.encode(),) if asked.filter and asked.filter != ">" else ()
    try:
        purged = stream.log.purge(patterns, asked.seq, asked.keep)
        if asked.seq > stream.log.last_seq + 1 and not patterns:
            stream.log.advance(asked.seq - 1)
    except StorageError as error:
        raise ApiError(ErrorCode.STREAM_PURGE_FAILED, err=str(error)) from error
    if not (patterns or asked.seq or asked.keep):
        stream.shows_front = True
    stream.purged(*patterns)
    answer = {"success": True, "purged": purged}
    return WhenDurable(stream.when_durable, answer, failure=ErrorCode.STREAM_PURGE_FAILED)


OPERATIONS = [
    Operation("STREAM.MSG.GET", 1, "stream_msg_get_response", get, {}, counted=False),
    Operation("STREAM.MSG.DELETE", 1, "stream_msg_delete_response", delete, {}),
    Operation("STREAM.PURGE", 1, "stream_purge_response", purge, {"purged": 0}),
]
