"""What is kept of a consumer as bytes: its configuration, and the position where it goes on.

A position is a version, counters, then one entry for each pending message and each that was
redelivered. The file around it has the checksum.
"""

import base64
import struct
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.consumer.config import AT_CREATION, ConsumerConfig
from slipstream.engine.consumer.pending import DUE, PENDING_SIZE
from slipstream.errors import CorruptionError

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer

VERSION = 2
# version, when the consumer was created, delivered (consumer, stream, at), floor (consumer, stream,
# at), next sequence, counts of: pending, redelivered, initial
_HEAD = struct.Struct("<BQQQQQQQQIII")
_REDELIVERED = struct.Struct("<QQ")
_SEQUENCE = struct.Struct("<Q")


def encode_meta(consumer: "Consumer", config: ConsumerConfig) -> bytes:
    """What is kept of `consumer` beside its state, with `config`, which is to be its configuration.

    Where it begins is kept with it if that could not be found out later: what is "new" or "last"
    when the server comes back is not what it was when the consumer was made.
    """
    kept: dict[str, Any] = {"config": config.emit(), "created": consumer.created}
    if config.deliver_policy in AT_CREATION:
        if not consumer.origin:
            consumer.origin = encode_state(consumer)
        kept["origin"] = base64.b64encode(consumer.origin).decode()
    return msgspec.json.encode(kept)


def encode_state(consumer: "Consumer") -> bytes:
    """The position of `consumer`, among the messages that are durable.

    A purge moves a position over messages that are not durable yet. After a crash others get their
    sequences, which a position beyond them would take for settled.
    """
    delivered = consumer.delivered_stream_seq
    floor = consumer.floor_stream_seq
    next_seq = consumer.next_seq
    if not begins_later(consumer):
        durable = consumer.stream.readable_seq
        delivered = min(delivered, durable)
        floor = min(floor, durable)
        next_seq = min(next_seq, durable + 1)
    return pack_position(
        consumer.created,
        (consumer.delivered_seq, delivered, consumer.delivered_at),
        (consumer.floor_seq, floor, consumer.acked_at),
        next_seq,
        consumer.pending.pack(),
        consumer.redelivered,
        consumer.initial[consumer.initial_at :],
    )


def begins_later(consumer: "Consumer") -> bool:
    """Whether it begins at a sequence that is still to come."""
    return consumer.next_seq > consumer.log.last_seq + 1


def is_ahead(consumer: "Consumer") -> bool:
    """Whether its position is encoded as an earlier one, because of what is not durable yet."""
    furthest = max(consumer.delivered_stream_seq, consumer.floor_stream_seq)
    return not begins_later(consumer) and furthest > consumer.stream.readable_seq


def pack_position(
    created: int,
    delivered: tuple[int, int, int],
    floor: tuple[int, int, int],
    next_seq: int,
    pending: bytes,
    redelivered: dict[int, int],
    initial: list[int],
) -> bytes:
    """A position as bytes; `delivered` and `floor` are a consumer sequence, a stream sequence and a
    time (ns), `pending` is what `PendingMessages.pack` gives. Raises struct.error."""
    counts = (len(pending) // PENDING_SIZE, len(redelivered), len(initial))
    head = _HEAD.pack(VERSION, created, *delivered, *floor, next_seq, *counts)
    if not redelivered and not initial:  # as nearly always
        return head + pending
    parts = [head, pending]
    parts += [_REDELIVERED.pack(seq, count) for seq, count in redelivered.items()]
    parts += [_SEQUENCE.pack(seq) for seq in initial]
    return b"".join(parts)


def apply_state(consumer: "Consumer", data: bytes) -> None:
    """Put `consumer` where it was. Raises `CorruptionError`."""
    try:
        fields = _HEAD.unpack_from(data)
        if fields[0] != VERSION:
            raise CorruptionError(f"a consumer's state has the unknown version {fields[0]}")
        if fields[1] != consumer.created:
            raise CorruptionError("this is the state of an earlier consumer of the same name")
        at = _HEAD.size
        pending, redelivered, initial = fields[9:]
        consumer.pending.unpack(data[at : at + pending * PENDING_SIZE])
        at += pending * PENDING_SIZE
        for _ in range(redelivered):
            seq, count = _REDELIVERED.unpack_from(data, at)
            at += _REDELIVERED.size
            consumer.redelivered[seq] = count
        first = [_SEQUENCE.unpack_from(data, at + i * 8)[0] for i in range(initial)]
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"a consumer's state is too short: {error}") from error
    consumer.delivered_seq, consumer.delivered_stream_seq, consumer.delivered_at = fields[2:5]
    consumer.floor_seq, consumer.floor_stream_seq, consumer.acked_at = fields[5:8]
    consumer.next_seq = fields[8]
    consumer.due.extend(
        seq
        for seq in consumer.pending.sequences()
        if consumer.pending.deadline(consumer.pending.find(seq)) == DUE
    )
    consumer.initial = first
