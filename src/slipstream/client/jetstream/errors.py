"""What can go wrong between a client and JetStream.

    JetStreamError
    ├── ApiError                        the server said no: code, err_code, description
    │   ├── JetStreamNotEnabledError    NOT_ENABLED
    │   │   └── JetStreamNotEnabledForAccountError  NOT_ENABLED_FOR_ACCOUNT
    │   ├── UnavailableError            CLUSTER_NOT_AVAIL: the cluster has no leader at the moment
    │   ├── BadRequestError             BAD_REQUEST, INVALID_JSON
    │   ├── OfflineError                STREAM_OFFLINE, CONSUMER_OFFLINE and, with a reason,
    │   │                               STREAM_OFFLINE_REASON, CONSUMER_OFFLINE_REASON
    │   ├── StreamNotFoundError         STREAM_NOT_FOUND
    │   ├── StreamExistsError           STREAM_NAME_EXIST: it has another configuration
    │   ├── ConsumerNotFoundError       CONSUMER_NOT_FOUND
    │   │   └── ConsumerDoesNotExistError   CONSUMER_DOES_NOT_EXIST, of an update
    │   ├── ConsumerExistsError         CONSUMER_ALREADY_EXISTS: it has another configuration
    │   │   └── ConsumerNameInUseError  CONSUMER_NAME_EXIST
    │   ├── ConsumerCreateError         CONSUMER_CREATE: the configuration, or its update, is wrong
    │   ├── MaximumConsumersError       MAXIMUM_CONSUMERS_LIMIT
    │   ├── FilterError                 what is wrong with a consumer's filters
    │   │   ├── DuplicateFilterSubjectsError    CONSUMER_DUPLICATE_FILTER_SUBJECTS
    │   │   ├── OverlappingFilterSubjectsError  CONSUMER_OVERLAPPING_SUBJECT_FILTERS
    │   │   └── EmptyFilterError        CONSUMER_EMPTY_FILTER
    │   ├── InvalidResetError           CONSUMER_INVALID_RESET: a consumer cannot go there
    │   ├── MessageNotFoundError        NO_MESSAGE_FOUND
    │   ├── MessageDeleteError          SEQUENCE_NOT_FOUND, STREAM_MSG_DELETE_FAILED
    │   ├── WrongStreamError            STREAM_NOT_MATCH: `expected_stream` is another one
    │   ├── WrongLastSequenceError      STREAM_WRONG_LAST_SEQUENCE,
    │   │                               STREAM_WRONG_LAST_SEQUENCE_CONSTANT
    │   ├── WrongLastMessageIdError     STREAM_WRONG_LAST_MSG_ID
    │   └── ScheduleError               MESSAGE_SCHEDULES_SCHEDULER_INVALID, and
    │       ├── SchedulesDisabledError  MESSAGE_SCHEDULES_DISABLED
    │       ├── SchedulePatternError    MESSAGE_SCHEDULES_PATTERN_INVALID
    │       ├── ScheduleTargetError     MESSAGE_SCHEDULES_TARGET_INVALID
    │       ├── ScheduleTtlError        MESSAGE_SCHEDULES_TTL_INVALID
    │       ├── ScheduleRollupError     MESSAGE_SCHEDULES_ROLLUP_INVALID
    │       ├── ScheduleSourceError     MESSAGE_SCHEDULES_SOURCE_INVALID
    │       ├── ScheduleTimeZoneError   MESSAGE_SCHEDULES_TIME_ZONE_INVALID
    │       ├── MirrorWithSchedulesError    MIRROR_WITH_MSG_SCHEDULES
    │       └── SourceWithSchedulesError    SOURCE_WITH_MSG_SCHEDULES
    ├── InvalidNameError                (also a ValueError) a name that cannot be one
    │   ├── InvalidStreamNameError
    │   │   └── EmptyStreamNameError
    │   └── InvalidConsumerNameError
    ├── InvalidAnswerError              an answer that is not JetStream's
    ├── BackupError                     a backup or a restore came to nothing
    ├── PublishError                    a publish that was not acknowledged; `may_be_stored`
    │   ├── NoStreamError               no stream listens on the subject
    │   ├── PublishTimeoutError         the acknowledgement did not come in time
    │   ├── PublishInterruptedError     the connection broke before the acknowledgement came
    │   └── TooManyInFlightError        the bound on acknowledgements in flight is reached
    ├── BatchError                      a batch publish that the server abandoned
    ├── ConsumeError                    consuming stopped, or was disturbed
    │   ├── NoHeartbeatError            no heartbeat came in time
    │   ├── ConsumerDeletedError        the consumer is gone
    │   ├── ConsumerTypeError           a consumer of the other kind
    │   │   ├── NotPullConsumerError
    │   │   └── NotPushConsumerError
    │   ├── BadPullRequestError         the server refuses the pull request (400, 409 Exceeded...)
    │   ├── MaxWaitingExceededError     too many pull requests wait already
    │   ├── MaxBytesExceededError       the next message is larger than the bound on bytes
    │   ├── PinMismatchError            another client is the pinned one
    │   ├── LeadershipChangedError      the consumer has a new leader
    │   ├── ServerShutdownError         the server goes away
    │   ├── NoConsumerResponseError     nobody answers for the consumer
    │   ├── OrderedGapError             messages were lost on the way; they are read again
    │   ├── OrderedResetError           an ordered consumer could not be recreated
    │   ├── OrderedNotCreatedError      info of an ordered consumer that has not read yet
    │   ├── OrderedBusyError            a second fetch of an ordered consumer at a time
    │   ├── AlreadyConsumingError       a second reader of a push consumer without a group
    │   ├── SlowPushConsumerError       messages came faster than they were taken, and were dropped
    │   └── ConsumeStoppedError         `next` after `stop`
    ├── FeatureError                    the server is too old for what was asked
    ├── NotJetStreamMessageError        an acknowledgement of a message without an ack subject
    └── AlreadyAcknowledgedError        a second final acknowledgement of one message

Names in capitals are those of `slipstream.client.jetstream.ErrorCode`, which has every error of the
server, with its number; `ApiError.err_code` compares with them.

A message says what was asked of which stream or consumer, what is wrong, and what to do.
"""

from typing import Any

from slipstream.model.error_codes import ErrorCode
from slipstream.model.errors import InvalidAnswerError as InvalidAnswerError
from slipstream.model.errors import JetStreamError as JetStreamError


class ApiError(JetStreamError):
    """The server's answer to an API request or publish is an error.

    `code` is like an HTTP status, `err_code` names the error exactly (docs/protocol/events.md),
    `description` is the server's text, `asked` the request.
    """

    def __init__(self, code: int, err_code: int, description: str, asked: str = "") -> None:
        self.code = code
        self.err_code = err_code
        self.description = description
        self.asked = asked
        said = f"{description} ({code}/{err_code})"
        super().__init__(f"{asked}: {said}" if asked else said)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.err_code, self.description, self.asked)


class JetStreamNotEnabledError(ApiError):
    """The server has no JetStream."""


class JetStreamNotEnabledForAccountError(JetStreamNotEnabledError):
    """The server has JetStream, this account on it has not."""


class UnavailableError(ApiError):
    """JetStream cannot answer at the moment: its cluster has no leader."""


class BadRequestError(ApiError):
    """The server could not make sense of the request."""


class OfflineError(ApiError):
    """A stream or consumer that this server keeps but cannot run, since it needs a newer one."""


class StreamNotFoundError(ApiError):
    """There is no stream of that name."""


class StreamExistsError(ApiError):
    """A stream of that name exists with another configuration."""


class ConsumerNotFoundError(ApiError):
    """There is no consumer of that name on the stream."""


class ConsumerDoesNotExistError(ConsumerNotFoundError):
    """An update of a consumer that does not exist."""


class ConsumerExistsError(ApiError):
    """A consumer of that name exists with another configuration."""


class ConsumerNameInUseError(ConsumerExistsError):
    """A push consumer cannot change while somebody listens to it."""


class ConsumerCreateError(ApiError):
    """A consumer's configuration cannot be, or not as a change of what it is."""


class MaximumConsumersError(ApiError):
    """The stream, or the account, has as many consumers as it may."""


class FilterError(ApiError):
    """Something is wrong with a consumer's subject filters."""


class DuplicateFilterSubjectsError(FilterError):
    """Both `filter_subject` and `filter_subjects` are given."""


class OverlappingFilterSubjectsError(FilterError):
    """One of `filter_subjects` matches subjects of another one."""


class EmptyFilterError(FilterError):
    """One of `filter_subjects` is empty."""


class InvalidResetError(ApiError):
    """A consumer's deliver policy does not let it go to that sequence."""


class MessageNotFoundError(ApiError):
    """The stream has no such message (any more)."""


class MessageDeleteError(ApiError):
    """A message was not deleted: there is none, or the stream forbids it."""


class WrongStreamError(ApiError):
    """The stream that listens is not the expected one."""


class WrongLastSequenceError(ApiError):
    """The stream, or the subject in it, has gone on: the expected last sequence is not the last.

    `last_sequence` is the actual one, or None when the server does not say (a write in flight).
    """

    @property
    def last_sequence(self) -> int | None:
        """The sequence that the server compared with."""
        digits = self.description.rpartition(": ")[2]
        return int(digits) if digits.isdigit() else None


class WrongLastMessageIdError(ApiError):
    """The stream's last message has another id than was expected."""


class ScheduleError(ApiError):
    """Something is wrong with a message's schedule."""


class SchedulesDisabledError(ScheduleError):
    """The stream does not allow schedules (`allow_msg_schedules`)."""


class SchedulePatternError(ScheduleError):
    """It cannot be read when the message is to be published."""


class ScheduleTargetError(ScheduleError):
    """The target is no other subject of the stream."""


class ScheduleTtlError(ScheduleError):
    """The time to live of what is produced is not valid."""


class ScheduleRollupError(ScheduleError):
    """Schedules do not know this rollup."""


class ScheduleSourceError(ScheduleError):
    """The source is no other subject of the stream."""


class ScheduleTimeZoneError(ScheduleError):
    """There is no such time zone."""


class MirrorWithSchedulesError(ScheduleError):
    """A mirror cannot schedule messages."""


class SourceWithSchedulesError(ScheduleError):
    """A stream with sources cannot schedule messages."""


_CLASSES: dict[int, type[ApiError]] = {
    ErrorCode.BAD_REQUEST: BadRequestError,
    ErrorCode.CLUSTER_NOT_AVAIL: UnavailableError,
    ErrorCode.CONSUMER_CREATE: ConsumerCreateError,
    ErrorCode.CONSUMER_NAME_EXIST: ConsumerNameInUseError,
    ErrorCode.CONSUMER_NOT_FOUND: ConsumerNotFoundError,
    ErrorCode.INVALID_JSON: BadRequestError,
    ErrorCode.MAXIMUM_CONSUMERS_LIMIT: MaximumConsumersError,
    ErrorCode.NO_MESSAGE_FOUND: MessageNotFoundError,
    ErrorCode.NOT_ENABLED_FOR_ACCOUNT: JetStreamNotEnabledForAccountError,
    ErrorCode.SEQUENCE_NOT_FOUND: MessageDeleteError,
    ErrorCode.STREAM_MSG_DELETE_FAILED: MessageDeleteError,
    ErrorCode.STREAM_NAME_EXIST: StreamExistsError,
    ErrorCode.STREAM_NOT_FOUND: StreamNotFoundError,
    ErrorCode.STREAM_NOT_MATCH: WrongStreamError,
    ErrorCode.STREAM_WRONG_LAST_MSG_ID: WrongLastMessageIdError,
    ErrorCode.STREAM_WRONG_LAST_SEQUENCE: WrongLastSequenceError,
    ErrorCode.NOT_ENABLED: JetStreamNotEnabledError,
    ErrorCode.STREAM_OFFLINE: OfflineError,
    ErrorCode.CONSUMER_OFFLINE: OfflineError,
    ErrorCode.CONSUMER_DUPLICATE_FILTER_SUBJECTS: DuplicateFilterSubjectsError,
    ErrorCode.CONSUMER_OVERLAPPING_SUBJECT_FILTERS: OverlappingFilterSubjectsError,
    ErrorCode.CONSUMER_EMPTY_FILTER: EmptyFilterError,
    ErrorCode.CONSUMER_ALREADY_EXISTS: ConsumerExistsError,
    ErrorCode.CONSUMER_DOES_NOT_EXIST: ConsumerDoesNotExistError,
    ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT: WrongLastSequenceError,
    ErrorCode.MIRROR_WITH_MSG_SCHEDULES: MirrorWithSchedulesError,
    ErrorCode.SOURCE_WITH_MSG_SCHEDULES: SourceWithSchedulesError,
    ErrorCode.MESSAGE_SCHEDULES_DISABLED: SchedulesDisabledError,
    ErrorCode.MESSAGE_SCHEDULES_PATTERN_INVALID: SchedulePatternError,
    ErrorCode.MESSAGE_SCHEDULES_TARGET_INVALID: ScheduleTargetError,
    ErrorCode.MESSAGE_SCHEDULES_TTL_INVALID: ScheduleTtlError,
    ErrorCode.MESSAGE_SCHEDULES_ROLLUP_INVALID: ScheduleRollupError,
    ErrorCode.STREAM_OFFLINE_REASON: OfflineError,
    ErrorCode.CONSUMER_OFFLINE_REASON: OfflineError,
    ErrorCode.MESSAGE_SCHEDULES_SOURCE_INVALID: ScheduleSourceError,
    ErrorCode.CONSUMER_INVALID_RESET: InvalidResetError,
    ErrorCode.MESSAGE_SCHEDULES_SCHEDULER_INVALID: ScheduleError,
    ErrorCode.MESSAGE_SCHEDULES_TIME_ZONE_INVALID: ScheduleTimeZoneError,
}


def api_error(error: Any, asked: str = "") -> ApiError:
    """The exception for a response's `error` object; what is no such object is its description."""
    if not isinstance(error, dict):
        return ApiError(0, 0, str(error), asked)
    code, err_code = (n if isinstance(n := error.get(k), int) else 0 for k in ("code", "err_code"))
    made = _CLASSES.get(err_code, ApiError)
    return made(code, err_code, str(error.get("description", "")), asked)


class InvalidNameError(JetStreamError, ValueError):
    """A name of a stream or consumer has no blanks and none of ``. * > / \\``."""


class InvalidStreamNameError(InvalidNameError):
    """A stream cannot have this name."""


class EmptyStreamNameError(InvalidStreamNameError):
    """A stream needs a name."""


class InvalidConsumerNameError(InvalidNameError):
    """A consumer cannot have this name."""


class BackupError(JetStreamError):
    """A backup or a restore has come to nothing: the directory, or a server that fell silent."""


class PublishError(JetStreamError):
    """A message was published and not acknowledged.

    `may_be_stored` says whether it may be in the stream all the same: publish it again with the
    same `message_id` then, and the stream keeps one of the two.
    """

    def __init__(self, message: str, *, subject: str = "", may_be_stored: bool = True) -> None:
        super().__init__(message)
        self.subject = subject
        self.may_be_stored = may_be_stored


class NoStreamError(PublishError):
    """No stream listens on the subject, or none that is ready after all retries or in time."""


class PublishTimeoutError(PublishError, TimeoutError):
    """The acknowledgement did not come in time."""


class PublishInterruptedError(PublishError, ConnectionError):
    """The connection broke, or was closed, before the acknowledgement came."""


class TooManyInFlightError(PublishError):
    """As many acknowledgements are awaited as are allowed; nothing was sent."""


class BatchError(JetStreamError):
    """The server abandoned a batch of messages, or it was used after its end."""


class ConsumeError(JetStreamError):
    """Base of what stops or disturbs consuming."""


class NoHeartbeatError(ConsumeError):
    """The server sent neither messages nor heartbeats for twice the heartbeat interval."""


class ConsumerDeletedError(ConsumeError):
    """The consumer was deleted, or its stream was."""


class ConsumerTypeError(ConsumeError):
    """The consumer is of the other kind: push where pull was expected, or pull where push was."""


class NotPullConsumerError(ConsumerTypeError):
    """A push consumer where a pull consumer was expected."""


class NotPushConsumerError(ConsumerTypeError):
    """A pull consumer where a push consumer was expected."""


class BadPullRequestError(ConsumeError):
    """The server refuses the pull request as it is."""


class MaxWaitingExceededError(ConsumeError):
    """As many pull requests wait as the consumer's `max_waiting` allows."""


class MaxBytesExceededError(ConsumeError):
    """The next message is larger than the pull request's `max_bytes`."""


class PinMismatchError(ConsumeError):
    """The priority group is pinned to another client."""


class LeadershipChangedError(ConsumeError):
    """The consumer has a new leader; the pull request is lost."""


class ServerShutdownError(ConsumeError):
    """The server that leads the consumer goes away; the pull request is lost."""


class NoConsumerResponseError(ConsumeError):
    """Nobody answers for the consumer: it does not exist, or has no leader."""


class OrderedGapError(ConsumeError):
    """Messages of an ordered consumer were lost on the way; it reads them again."""


class OrderedResetError(ConsumeError):
    """An ordered consumer lost its place and could not be recreated."""


class OrderedNotCreatedError(ConsumeError):
    """An ordered consumer that has not begun to read is nothing on the server yet."""


class OrderedBusyError(ConsumeError):
    """An ordered consumer fetches already; one fetch at a time keeps the order."""


class AlreadyConsumingError(ConsumeError):
    """A push consumer without a group is consumed already; every message would come twice."""


class SlowPushConsumerError(ConsumeError):
    """Messages of a push consumer came faster than they were taken, and some were dropped."""


class ConsumeStoppedError(ConsumeError):
    """Consuming was stopped or drained; there is no next message."""


class FeatureError(JetStreamError):
    """The server did not honour what was asked, because it is too old for it."""


class NotJetStreamMessageError(JetStreamError):
    """The message has no acknowledgement subject: it was not delivered by a consumer."""


class AlreadyAcknowledgedError(JetStreamError):
    """The message has had its final acknowledgement; only the first one counts."""
