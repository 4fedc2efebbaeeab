"""A message that is traced comes to a stream: what becomes of it is told once it is certain.

`Stream.handle` stores it as it stores any other; whether it has, is seen from outside. What is not
seen there, a refusal or a duplicate, the stream notes in the `Outcome` that is set meanwhile.
"""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.watch import MessageWatch, Publication, TraceContext
from slipstream.errors import StorageError
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_MSG_ID
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream


class Outcome:
    """What a stream notes of a message that it does not store."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.duplicate_of = 0


def handle_watched(
    stream: "Stream", message: Inbound, watch: MessageWatch, trace: TraceContext
) -> int:
    """`Stream.handle` for a message of a sampled trace."""
    found = find(message.data, message.header_start, message.body_start, NATS_MSG_ID) or b""
    publication = Publication(
        trace=trace,
        account=stream.account.name,
        stream=stream.name,
        subject=message.subject.decode("utf-8", "replace"),
        body_size=message.end - message.body_start,
        message_id=found.decode("utf-8", "replace"),
        began=stream.clock.now,
    )
    last_seq = stream.log.last_seq
    outcome = stream.outcome = Outcome()
    try:
        count: int = stream.handle(message)
    finally:
        stream.outcome = None
    if outcome.error is not None:
        _note_error(publication, outcome.error)
        watch.published(publication)
        return count
    if outcome.duplicate_of:
        publication.sequence = outcome.duplicate_of
        publication.is_duplicate = True
    elif stream.log.last_seq > last_seq:
        publication.sequence = stream.log.last_seq
    else:  # part of a batch, which is stored when the batch is
        watch.published(publication)
        return count

    def done(error: StorageError | None) -> None:
        if error is not None:
            _note_error(publication, ApiError(ErrorCode.STREAM_STORE_FAILED, err=str(error)))
        watch.published(publication)

    stream.when_durable(done)
    return count


def _note_error(publication: Publication, error: ApiError) -> None:
    publication.sequence = 0
    publication.is_duplicate = False
    publication.error_code = int(error.err_code)
    publication.error = error.description
