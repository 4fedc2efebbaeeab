"""Dead letters: messages that a consumer gave up, in the stream where its `dead_letter` leads.

A server stores them with headers in front of those that the message had (docs/dead-letters.md).
Sending one again is at least once: it is published first and removed then. Its id makes a second
attempt a duplicate within the duplicate window of the stream that it comes from.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from slipstream.client.jetstream.errors import MessageDeleteError, MessageNotFoundError
from slipstream.client.jetstream.publish import PubAck
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.client.jetstream.stream import Stream
from slipstream.errors import ConfigError
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_names import (
    NATS_BATCH_COMMIT,
    NATS_BATCH_ID,
    NATS_BATCH_SEQUENCE,
    NATS_EXPECTED_PREFIX,
    NATS_MSG_ID,
    NATS_ROLLUP,
    SLIPSTREAM_DEAD_PREFIX,
)
from slipstream.model.infos import ConsumerInfo
from slipstream.model.times import Timestamp
from slipstream.wire.headers import Headers

if TYPE_CHECKING:
    from slipstream.client.jetstream.context import JetStream

_CAUSE = f"{SLIPSTREAM_DEAD_PREFIX}Letter"
# What a publisher asked for the first time, and would be refused or do harm now.
_ONCE = (NATS_MSG_ID, NATS_ROLLUP, NATS_BATCH_ID, NATS_BATCH_SEQUENCE, NATS_BATCH_COMMIT)


class DeadLetter(msgspec.Struct, kw_only=True):
    """A message that was given up, as it was, and what became of it."""

    stream: str  # where the dead letter is
    sequence: int  # ... in that stream
    stored: Timestamp | None = None  # when it became one
    cause: str  # "max_deliver" or "terminated"
    reason: str
    deliveries: int
    id: str
    from_stream: str
    from_consumer: str
    from_sequence: int
    published: str = ""  # when the message was stored first, RFC 3339
    subject: str  # of the message
    headers: Headers = msgspec.field(default_factory=Headers)  # of the message
    data: bytes = b""


def read_letter(message: StoredMessage) -> DeadLetter | None:
    """What a stored message says as a dead letter; None if it is none."""
    headers = message.headers.copy()
    taken: dict[str, str] = {}
    for name in [name for name in headers if name.startswith(SLIPSTREAM_DEAD_PREFIX)]:
        first, *others = headers.get_all(name)
        taken[name.removeprefix(SLIPSTREAM_DEAD_PREFIX)] = first
        del headers[name]
        for value in others:  # of an earlier step
            headers.add(name, value)
    try:
        return DeadLetter(
            stream=message.stream,
            sequence=message.sequence,
            stored=message.time,
            cause=taken["Letter"],
            reason=taken.get("Reason", ""),
            deliveries=int(taken["Deliveries"]),
            id=taken["Id"],
            from_stream=taken["Stream"],
            from_consumer=taken["Consumer"],
            from_sequence=int(taken["Sequence"]),
            published=taken.get("Time", ""),
            subject=taken["Subject"],
            headers=headers,
            data=message.data,
        )
    except (KeyError, ValueError):  # somebody else's message
        return None


async def letters_of(js: "JetStream", info: ConsumerInfo) -> AsyncIterator[DeadLetter]:
    """The dead letters of a consumer, the oldest first. Raises as `_stream_of`."""
    stream = await _stream_of(js, info)
    is_mapped = stream.cached_info.config.subject_transform is not None
    pattern = ">" if is_mapped else info.config.dead_letter
    sequence = 1
    while True:
        try:
            message = await stream.get_next(sequence, pattern, direct=False)
        except MessageNotFoundError:
            return
        sequence = message.sequence + 1
        letter = read_letter(message)
        if letter is not None and _is_of(letter, info):
            yield letter


async def letter_of(js: "JetStream", info: ConsumerInfo, sequence: int) -> DeadLetter:
    """The dead letter of a consumer that has this sequence in its own stream. Raises
    `MessageNotFoundError`, and as `_stream_of`."""
    stream = await _stream_of(js, info)
    letter = read_letter(await stream.get_message(sequence, direct=False))
    if letter is None or not _is_of(letter, info):
        raise MessageNotFoundError(
            404,
            ErrorCode.NO_MESSAGE_FOUND,
            f"message {sequence} of stream {stream.name} is no dead letter of it",
            f"dead letter {sequence} of consumer {info.name!r}",
        )
    return letter


def _is_of(letter: DeadLetter, info: ConsumerInfo) -> bool:
    return (letter.from_stream, letter.from_consumer) == (info.stream_name, info.name)


async def _stream_of(js: "JetStream", info: ConsumerInfo) -> Stream:
    """Where the dead letters of a consumer go. Raises `ConfigError` if it has none by its
    configuration, `StreamNotFoundError` if no stream stores them."""
    if not info.config.dead_letter:
        raise ConfigError(
            f"consumer {info.name!r} of stream {info.stream_name!r} has no dead_letter: update it "
            "with the subject that its dead letters are to have"
        )
    return await js.stream_by_subject(info.config.dead_letter)


async def resend(js: "JetStream", letter: DeadLetter) -> PubAck:
    """Publish a dead letter's message to its subject again, then remove the dead letter."""
    headers = letter.headers.copy()
    for name in list(headers):
        if name in _ONCE or name.startswith(NATS_EXPECTED_PREFIX):
            del headers[name]
    ack = await js.publish(letter.subject, letter.data, headers=headers, message_id=letter.id)
    stream: Stream = await js.stream(letter.stream)
    try:
        await stream.delete_message(letter.sequence)
    except MessageDeleteError:
        pass  # somebody was faster, and the id has made one message of both
    return ack
