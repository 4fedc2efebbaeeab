"""The calls that begin the snapshot of a stream and its restore
(docs/protocol/streams.md#snapshots-and-restores)."""

from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.api.dispatch import Done, Fields, Operation, Request, WhenDurable
from slipstream.engine.api.requests import RestoreRequest, SnapshotRequest, read_body
from slipstream.engine.api.stream_info import shown_config, stream_info, stream_state
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.stream.checks import (
    check_asked,
    check_filled,
    check_place,
    check_replicas,
    check_request,
)
from slipstream.engine.stream.config import StreamConfig, fill_defaults, load_restored
from slipstream.errors import StorageError
from slipstream.model.error_codes import ErrorCode
from slipstream.wire.subjects import is_literal

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream


def snapshot(js: "JetStream", request: Request) -> WhenDurable:
    """STREAM.SNAPSHOT: the answer comes once all that is sent is durable; then it is sent."""
    from slipstream.engine.backup.snapshot import Snapshot  # few servers need it

    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    asked = read_body(request, SnapshotRequest)
    stream = js.find(request.tokens[0])
    if not is_literal(asked.deliver_subject.encode()):
        raise ApiError(ErrorCode.SNAPSHOT_DELIVER_SUBJECT_INVALID)
    state = stream_state(stream)
    kept = dict(state)
    if asked.no_consumers:
        kept["consumer_count"] = 0
    try:
        begun = Snapshot(stream, asked, state, msgspec.json.encode(kept), request.message.session)
    except (OSError, StorageError) as error:
        raise ApiError(ErrorCode.STREAM_SNAPSHOT, err=str(error)) from error
    answer = {"config": shown_config(stream, with_version=False), "state": state}

    def wait(done: Done) -> None:
        def durable(error: Exception | None) -> None:
            done(error)
            if error is None:
                begun.begin()
            else:
                begun.stop()

        stream.when_durable(durable)

    return WhenDurable(wait, answer, ErrorCode.STREAM_SNAPSHOT)


def restore(js: "JetStream", request: Request) -> Fields:
    """STREAM.RESTORE: says where the chunks go."""
    from slipstream.engine.backup.restore import Restore  # few servers need it

    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    asked = read_body(request, RestoreRequest)
    name = request.tokens[0]
    config = _read_config(js, asked, name, request.strict)
    if name in js.streams:
        raise ApiError(ErrorCode.STREAM_NAME_EXIST_RESTORE_FAILED)
    js.check_account(config, is_new=True)
    session = request.message.session
    first_seq = asked.state.get("first_seq")
    known = first_seq if isinstance(first_seq, int) else 0
    return {"deliver_subject": Restore(js, config, known, session, stream_info).subject}


def _read_config(js: "JetStream", asked: RestoreRequest, name: str, strict: bool) -> StreamConfig:
    """The configuration of the stream that is to come, checked by itself. Raises `ApiError`."""
    config = load_restored(asked.config, strict)
    config.name = config.name or name
    check_request(config, name)
    check_asked(config)
    limit = js.engine.options.jetstream_limits.duplicate_window
    shrunk = fill_defaults(config, limit)
    check_filled(config, shrunk, limit, js.config_of)
    config.pedantic = False
    check_replicas(config, js.engine)
    check_place(config, js.engine)
    return config


OPERATIONS = [
    Operation("STREAM.SNAPSHOT", 1, "stream_snapshot_response", snapshot, {}),
    Operation("STREAM.RESTORE", 1, "stream_restore_response", restore, {"deliver_subject": ""}),
]
