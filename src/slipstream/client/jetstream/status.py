"""What a status in place of messages means for a pull request
(docs/protocol/consumers.md#statuses)."""

from enum import Enum

from slipstream.client.jetstream.errors import (
    BadPullRequestError,
    ConsumeError,
    ConsumerDeletedError,
    FeatureError,
    JetStreamError,
    LeadershipChangedError,
    MaxBytesExceededError,
    MaxWaitingExceededError,
    NoConsumerResponseError,
    NotPullConsumerError,
    PinMismatchError,
    ServerShutdownError,
)
from slipstream.client.message import Message
from slipstream.model.header_names import NATS_PENDING_BYTES, NATS_PENDING_MESSAGES


class StatusMeaning(Enum):
    """What a status means for consuming."""

    ALIVE = "the request goes on"
    DONE = "the request has ended as it should"
    LOST = "the request is lost, another one may succeed"
    FATAL = "no request can succeed"


def meaning_of(message: Message, who: str) -> tuple[StatusMeaning, JetStreamError | None]:
    """The meaning on a status message, and the error to show for it; `who` names the consumer."""
    status, text = message.status, message.description
    said = f"{who}: {status} {text}".rstrip()
    if status == 100:
        return StatusMeaning.ALIVE, None
    if status in (404, 408):
        return StatusMeaning.DONE, None
    if status == 503:
        return StatusMeaning.LOST, NoConsumerResponseError(
            f"{who}: nobody answers (503). The consumer or its stream was deleted, or it has no "
            "leader at the moment"
        )
    if status == 400:
        return StatusMeaning.FATAL, BadPullRequestError(
            f"{said}. Change the options of the request"
        )
    if status == 412:
        return StatusMeaning.FATAL, FeatureError(
            f"{said}. The server is too old for what was asked"
        )
    if status == 423:
        return StatusMeaning.LOST, PinMismatchError(f"{said}. Another client is the pinned one now")
    if status == 409:
        return _conflict(text, said)
    return StatusMeaning.LOST, ConsumeError(
        f"{said}. The server sent a status unknown to this client"
    )


def _conflict(text: str, said: str) -> tuple[StatusMeaning, JetStreamError | None]:
    lower = text.lower()
    if "consumer deleted" in lower:
        return StatusMeaning.FATAL, ConsumerDeletedError(f"{said}. Create it again to go on")
    if "push based" in lower:
        return StatusMeaning.FATAL, NotPullConsumerError(f"{said}. Use `push_consumer` for it")
    if "batch completed" in lower:
        return StatusMeaning.DONE, None
    if "message size exceeds" in lower:
        return StatusMeaning.LOST, MaxBytesExceededError(
            f"{said}. Raise `max_bytes` to get past it"
        )
    if "leadership change" in lower:
        return StatusMeaning.LOST, LeadershipChangedError(said)
    if "server shutdown" in lower:
        return StatusMeaning.LOST, ServerShutdownError(said)
    if "exceeded maxwaiting" in lower:
        return StatusMeaning.LOST, MaxWaitingExceededError(
            f"{said}. Too many clients wait: raise `max_waiting`"
        )
    if lower.startswith("exceeded"):
        return StatusMeaning.FATAL, BadPullRequestError(f"{said}. Ask for less")
    return StatusMeaning.LOST, ConsumeError(said)


def pending_of(message: Message) -> tuple[int, int]:
    """Messages and bytes that the request which ended had still to get."""
    return header_number(message, NATS_PENDING_MESSAGES), header_number(message, NATS_PENDING_BYTES)


def header_number(message: Message, name: str) -> int:
    """A number that the server wrote into a header; 0 if there is none."""
    text = message.header(name) or ""
    return int(text) if text.isdecimal() and len(text) < 20 else 0
