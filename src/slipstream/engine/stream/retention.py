"""What the limits refuse, and what interest no longer holds
(docs/protocol/streams.md#retention)."""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.staging import Staged
from slipstream.log.record import Record
from slipstream.log.subject_index import SubjectFilter
from slipstream.model.error_codes import ErrorCode

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream


def check_room_for(
    stream: "Stream",
    subject: bytes,
    message: Inbound,
    rolls_up: bool,
    staged: Staged | None = None,
) -> None:
    """Refuse what does not fit: discard new, and what the account or server may store. `staged` is
    to be stored before it.

    Raises `ApiError`.
    """
    config = stream.config
    log = stream.log
    header_size = message.body_start - message.header_start
    size = log.size_of(len(subject), header_size, message.end - message.body_start)
    if stream.js.has_storage_limits:
        stream.js.check_storage(config.storage, size + (staged.bytes if staged else 0))
    if config.discard != "new":
        return
    if config.retention == "interest" and not stream.is_wanted(subject):
        return  # it is not stored
    id = log.subjects.find(subject)
    on_subject = log.subjects.count(id) if id >= 0 else 0
    messages, stored = int(log.messages), int(log.bytes)
    if staged is not None:
        on_subject += staged.on_subject.get(subject, 0)
        messages += staged.messages
        stored += staged.bytes
    per_subject = config.max_msgs_per_subject
    replaces = per_subject > 0 and on_subject >= per_subject
    if replaces and config.discard_new_per_subject and not rolls_up:
        raise ApiError(ErrorCode.STREAM_STORE_FAILED, err="maximum messages per subject exceeded")
    if config.max_msgs > 0 and messages >= config.max_msgs and not replaces:
        raise ApiError(ErrorCode.STREAM_STORE_FAILED, err="maximum messages exceeded")
    if config.max_bytes > 0 and stored + size > config.max_bytes:
        # Only what is no larger than the message that it replaces gets in.
        if not replaces or _size_of_oldest(stream, subject) < size:
            raise ApiError(ErrorCode.STREAM_STORE_FAILED, err="maximum bytes exceeded")


def _size_of_oldest(stream: "Stream", subject: bytes) -> int:
    record = Record()
    if not stream.log.read(stream.log.first_of(subject), record):
        return 0
    header_size = record.body_start - record.header_start
    return stream.log.size_of(len(subject), header_size, record.end - record.body_start)


def thinned(stream: "Stream") -> None:
    """Any messages may have gone: consumers look again."""
    for consumer in stream.every_consumer():
        consumer.look_again()
    stream.mark_dirty()


def enforce_all(stream: "Stream") -> None:
    """Apply limits that have just become tighter to everything that is stored."""
    log = stream.log
    most = stream.config.max_msgs_per_subject
    if most > 0 and not stream.doubt:
        for id in log.subjects.ids():
            subject = log.subjects.subject(id)
            while log.subjects.find(subject) >= 0 and log.subjects.count(id) > most:
                log.remove(log.first_of(subject), False)
    stream.enforce_limits(b"")
    thinned(stream)
    stream.watch_age()


def enforce_again(stream: "Stream") -> None:
    """Apply the limits to what a start has found: a crash may have kept messages, and not that they
    had pushed others out."""
    log = stream.log
    before = log.messages
    if _is_crowded(stream):
        enforce_all(stream)
    else:
        stream.enforce_limits(b"")
        if log.messages != before:
            thinned(stream)


def _is_crowded(stream: "Stream") -> bool:
    """Whether some subject has more messages than it may have."""
    most = stream.config.max_msgs_per_subject
    subjects = stream.log.subjects
    if most <= 0 or stream.doubt or stream.log.messages == subjects.live:
        return False
    return most == 1 or any(subjects.count(id) > most for id in subjects.ids())


def drop_acked(stream: "Stream") -> None:
    """Remove what all consumers that it was for are done with: the stream now goes by interest.

    What was for none of them stays: it was stored when that did not matter. Without a consumer
    nothing does.
    """
    if not stream.consumers:
        drop_unneeded(stream)
        return
    _drop_settled(stream, max(c.floor_stream_seq for c in stream.consumers.values()))


def drop_settled(stream: "Stream") -> None:
    """Remove what consumers are done with though it is there: a crash came between the two.

    What an unfiltered consumer has not looked at it needs, so there is no need to look at that.
    """
    last = max((c.next_seq - 1 for c in stream.consumers.values()), default=0)
    _drop_settled(stream, min([last, *(c.next_seq - 1 for c in stream.unfiltered)]))


def _drop_settled(stream: "Stream", last: int) -> None:
    if stream.doubt or stream.doubtful:
        return  # what the consumers need is not known for certain
    log = stream.log
    record = Record()
    seq = log.first_seq
    while seq <= last and log.next(seq, None, record) and record.seq <= last:
        seq = record.seq + 1
        interested = [*stream.unfiltered, *stream.filters.match(record.subject)]
        if interested and not any(consumer.needs(record.seq) for consumer in interested):
            log.remove(record.seq, False)
    stream.mark_dirty()


def drop_unneeded(stream: "Stream", among: SubjectFilter | None = None) -> None:
    """Remove from an interest stream what no consumer is left to need; `among` are the messages
    that may be concerned (None: all)."""
    if stream.doubt or stream.doubtful:
        return  # what the consumers need is not known for certain
    log = stream.log
    if not stream.consumers:
        log.drop_below(log.last_seq + 1)
        stream.mark_dirty()
        return
    record = Record()
    seq = log.first_seq
    while log.next(seq, among, record):
        seq = record.seq + 1
        interested = [*stream.unfiltered, *stream.filters.match(record.subject)]
        if not any(consumer.needs(record.seq) for consumer in interested):
            log.remove(record.seq, False)
    stream.mark_dirty()
