"""What a server says about a pull request in place of messages (spec consumers.md section 6.1)."""

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


class Verdict(Enum):
    """What a status means for consuming."""

    ALIVE = "the request goes on"
    DONE = "the request has ended as it should"
    LOST = "the request is lost, another one may succeed"
    FATAL = "no request can succeed"


def judge(message: Message, who: str) -> tuple[Verdict, JetStreamError | None]:
    """The verdict on a status message, and the error to show for it; `who` names the consumer."""
    status, text = message.status, message.description
    said = f"{who}: {status} {text}".rstrip()
    if status == 100:
        return Verdict.ALIVE, None
    if status in (404, 408):
        return Verdict.DONE, None
    if status == 503:
        return Verdict.LOST, NoConsumerResponseError(
            f"{who}: nobody answers (503). The consumer or its stream was deleted, or it has no "
            "leader at the moment"
        )
    if status == 400:
        return Verdict.FATAL, BadPullRequestError(f"{said}. Change the options of the request")
    if status == 412:
        return Verdict.FATAL, FeatureError(f"{said}. The server is too old for what was asked")
    if status == 423:
        return Verdict.LOST, PinMismatchError(f"{said}. Another client is the pinned one now")
    if status == 409:
        return _conflict(text, said)
    return Verdict.LOST, ConsumeError(f"{said}. The server sent a status unknown to this client")


def _conflict(text: str, said: str) -> tuple[Verdict, JetStreamError | None]:
    lower = text.lower()
    if "consumer deleted" in lower:
        return Verdict.FATAL, ConsumerDeletedError(f"{said}. Create it again to go on")
    if "push based" in lower:
        return Verdict.FATAL, NotPullConsumerError(f"{said}. Use `push_consumer` for it")
    if "batch completed" in lower:
        return Verdict.DONE, None
    if "message size exceeds" in lower:
        return Verdict.LOST, MaxBytesExceededError(f"{said}. Raise `max_bytes` to get past it")
    if "leadership change" in lower:
        return Verdict.LOST, LeadershipChangedError(said)
    if "server shutdown" in lower:
        return Verdict.LOST, ServerShutdownError(said)
    if "exceeded maxwaiting" in lower:
        return Verdict.LOST, MaxWaitingExceededError(
            f"{said}. Too many clients wait: raise `max_waiting`"
        )
    if lower.startswith("exceeded"):
        return Verdict.FATAL, BadPullRequestError(f"{said}. Ask for less")
    return Verdict.LOST, ConsumeError(said)


def pending_of(message: Message) -> tuple[int, int]:
    """Messages and bytes that the request which ended had still to get."""
    return number(message, "Nats-Pending-Messages"), number(message, "Nats-Pending-Bytes")


def number(message: Message, name: str) -> int:
    """A number that the server wrote into a header; 0 if there is none."""
    text = message.header(name) or ""
    return int(text) if text.isdecimal() and len(text) < 20 else 0
