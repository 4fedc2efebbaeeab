"""What can go wrong between a client and JetStream.

    JetStreamError
    ├── ApiError                        the server said no: code, err_code, description
    │   ├── JetStreamNotEnabledError    10076, 10039
    │   ├── BadRequestError             10003, 10025
    │   ├── StreamNotFoundError         10059
    │   ├── StreamExistsError           10058: the name is in use with another configuration
    │   ├── ConsumerNotFoundError       10014, 10149 (an update of what does not exist)
    │   ├── ConsumerExistsError         10148, 10013
    │   ├── MessageNotFoundError        10037
    │   ├── WrongLastSequenceError      10071, 10164
    │   └── WrongLastMessageIdError     10070
    ├── InvalidNameError                a stream's or consumer's name that cannot be one
    ├── PublishError                    a publish that was not acknowledged; `may_be_stored`
    │   ├── NoStreamError               no stream listens on the subject
    │   ├── PublishTimeoutError         the acknowledgement did not come in time
    │   ├── PublishInterruptedError     the connection broke before the acknowledgement came
    │   └── TooManyInFlightError        the bound on acknowledgements in flight is reached
    ├── BatchError                      a batch publish that the server abandoned
    ├── ConsumeError                    consuming stopped, or was disturbed
    │   ├── NoHeartbeatError            the server went silent
    │   ├── ConsumerDeletedError        the consumer is gone
    │   ├── ConsumerTypeError           a pull from a push consumer, or the other way round
    │   ├── BadPullRequestError         the server refuses the pull request (400, 409 Exceeded...)
    │   ├── MaxBytesExceededError       the next message is larger than the bound on bytes
    │   ├── PinMismatchError            another client is the pinned one
    │   ├── LeadershipChangedError      the consumer has a new leader
    │   ├── ServerShutdownError         the server goes away
    │   ├── NoConsumerResponseError     nobody answers for the consumer
    │   ├── OrderedResetError           an ordered consumer could not be made anew
    │   ├── SlowPushConsumerError       messages came faster than they were taken, and were dropped
    │   └── ConsumeStoppedError         `next` after `stop`
    ├── FeatureError                    the server is too old for what was asked
    ├── NotJetStreamMessageError        an acknowledgement of a message without an ack subject
    └── AlreadyAcknowledgedError        a second final acknowledgement of one message

A message says what was asked of which stream or consumer, what is wrong, and what to do.
"""

from typing import Any

from slipstream.errors import Error


class JetStreamError(Error):
    """Base of the errors of JetStream."""


class ApiError(JetStreamError):
    """The server's answer to an API request or publish is an error.

    `code` is like an HTTP status, `err_code` names the error exactly (spec advisories-errors.md),
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
    """The server, or this account on it, has no JetStream."""


class BadRequestError(ApiError):
    """The server could not make sense of the request."""


class StreamNotFoundError(ApiError):
    """There is no stream of that name."""


class StreamExistsError(ApiError):
    """A stream of that name exists with another configuration."""


class ConsumerNotFoundError(ApiError):
    """There is no consumer of that name on the stream."""


class ConsumerExistsError(ApiError):
    """A consumer of that name exists with another configuration."""


class MessageNotFoundError(ApiError):
    """The stream has no such message (any more)."""


class WrongLastSequenceError(ApiError):
    """The stream, or the subject in it, has gone on: the expected last sequence is not the last.

    `last_sequence` is the actual one, or None when the server does not tell (a write in flight).
    """

    @property
    def last_sequence(self) -> int | None:
        """The sequence that the server compared with."""
        digits = self.description.rpartition(": ")[2]
        return int(digits) if digits.isdigit() else None


class WrongLastMessageIdError(ApiError):
    """The stream's last message has another id than was expected."""


def api_error(error: dict[str, Any], asked: str = "") -> ApiError:
    """The exception for a response's `error` object."""
    code, err_code = int(error.get("code", 0)), int(error.get("err_code", 0))
    return _class_of(err_code)(code, err_code, str(error.get("description", "")), asked)


def _class_of(err_code: int) -> type[ApiError]:
    match err_code:
        case 10076 | 10039:
            return JetStreamNotEnabledError
        case 10003 | 10025:
            return BadRequestError
        case 10059:
            return StreamNotFoundError
        case 10058:
            return StreamExistsError
        case 10014 | 10149:
            return ConsumerNotFoundError
        case 10148 | 10013:
            return ConsumerExistsError
        case 10037:
            return MessageNotFoundError
        case 10071 | 10164:
            return WrongLastSequenceError
        case 10070:
            return WrongLastMessageIdError
        case _:
            return ApiError


class InvalidNameError(JetStreamError, ValueError):
    """A name of a stream or consumer has no blanks and none of ``. * > / \\``."""


class PublishError(JetStreamError):
    """A message was published and not acknowledged.

    `may_be_stored` tells whether it may be in the stream all the same: publish it again with the
    same `message_id` then, and the stream keeps one of the two.
    """

    def __init__(self, message: str, *, subject: str = "", may_be_stored: bool = True) -> None:
        super().__init__(message)
        self.subject = subject
        self.may_be_stored = may_be_stored


class NoStreamError(PublishError):
    """No stream listens on the subject (or none that is ready, after all retries)."""


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


class BadPullRequestError(ConsumeError):
    """The server refuses the pull request as it is."""


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


class OrderedResetError(ConsumeError):
    """An ordered consumer lost its place and could not be made anew."""


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
