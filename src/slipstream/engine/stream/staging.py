"""What a batch has brought so far, as its next message has to see it, though nothing is stored."""

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import read_number
from slipstream.engine.session.message import Inbound
from slipstream.log.base import Log
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_EXPECTED_LAST_MSG_ID,
    NATS_EXPECTED_LAST_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_MSG_ID,
)
from slipstream.wire.headers import find


class Staged:
    """The messages of one batch, in order, up to the one that is being checked."""

    def __init__(self) -> None:
        self.total = 0  # messages
        self.messages = 0  # of these, that will be stored: somebody is interested in them
        self.bytes = 0  # of these, as the log counts them
        self.text_bytes = 0  # ... their subjects, header blocks and bodies
        self.on_subject: dict[bytes, int] = {}  # how many came on it
        self.counters: dict[bytes, int] = {}  # totals of counters
        self._ids: set[bytes] = set()

    def check(self, last_seq: int, message: Inbound) -> None:
        """What a message may not ask for within a batch; `last_seq` is that of the log. Raises
        `ApiError`."""

        def value(name: bytes) -> bytes:
            return find(message.data, message.header_start, message.body_start, name) or b""

        expected = value(NATS_EXPECTED_LAST_SEQUENCE)
        if expected and self.total:
            last_seq += self.total
            if read_number(expected) != last_seq:
                raise ApiError(ErrorCode.STREAM_WRONG_LAST_SEQUENCE, seq=last_seq)
            raise ApiError(ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        if value(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE):
            of = value(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT) or message.subject
            if of in self.on_subject:
                raise ApiError(ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
        if value(NATS_EXPECTED_LAST_MSG_ID):
            raise ApiError(
                ErrorCode.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH,
                header=NATS_EXPECTED_LAST_MSG_ID.decode(),
            )
        message_id = value(NATS_MSG_ID)
        if message_id and message_id in self._ids:
            raise ApiError(ErrorCode.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE)

    def check_rollup(self, subject: bytes, rollup: str) -> None:
        """A rollup may not remove what the batch itself brought. Raises `ApiError`."""
        if rollup == "all" and self.total:
            raise ApiError(ErrorCode.STREAM_ROLLUP_FAILED, err="batch rollup all invalid")
        if rollup == "sub" and subject in self.on_subject:
            raise ApiError(ErrorCode.STREAM_ROLLUP_FAILED, err="batch rollup sub invalid")

    def add(self, log: Log, message: Inbound, message_id: bytes, is_stored: bool) -> None:
        """The message that was checked is the next one."""
        self.total += 1
        subject = message.subject
        self.on_subject[subject] = self.on_subject.get(subject, 0) + 1
        if message_id:
            self._ids.add(message_id)
        if is_stored:
            header_size = message.body_start - message.header_start
            body_size = message.end - message.body_start
            self.messages += 1
            self.bytes += log.size_of(len(subject), header_size, body_size)
            self.text_bytes += len(subject) + header_size + body_size
