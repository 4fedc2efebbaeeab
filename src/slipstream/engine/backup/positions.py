"""A consumer in an archive: its configuration and position, as nats-server writes them.

What nats-server has no field for stands beside them under `slipstream`, which it ignores: where the
consumer goes on, and what is left of the first messages of a consumer with `last_per_subject`.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

from slipstream.engine.consumer.config import AT_CREATION, ConsumerConfig
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.state import pack_position
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import convert, decode, parse
from slipstream.errors import CorruptionError
from slipstream.log.base import Log
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.model.durations import LONGEST_NS

COUNT_MAX = 1 << 62  # of what goes on being counted
_PLACE = ("consumer_seq", "stream_seq")


class _Place(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Out(msgspec.Struct, rename="pascal"):
    """A message that is out for acknowledgement."""

    sequence: int = 0
    timestamp: int = 0


class _State(msgspec.Struct):
    delivered: _Place = msgspec.field(default_factory=_Place)
    ack_floor: _Place = msgspec.field(default_factory=_Place)
    pending: dict[int, _Out] | None = None
    redelivered: dict[int, int] | None = None  # how often each was delivered again


class _Own(msgspec.Struct):
    """What nats-server has no field for."""

    next_seq: int
    initial: list[int] = []


class _Entry(msgspec.Struct):
    config: dict[str, Any]
    state: _State = msgspec.field(default_factory=_State)
    slipstream: _Own | None = None


class ConsumerCopy:
    """A consumer as it is now; taken on the loop, where a million messages may be out."""

    def __init__(self, consumer: Consumer) -> None:
        self.name = consumer.name
        self._config = consumer.config.emit()
        self._delivered = (consumer.delivered_seq, consumer.delivered_stream_seq)
        self._floor = (consumer.floor_seq, consumer.floor_stream_seq)
        self._pending = consumer.pending.pack()
        self._redelivered = consumer.redelivered.copy()
        self._initial = consumer.initial[consumer.initial_at :]
        self._next_seq = consumer.next_seq

    def entry(self) -> bytes:
        """Its entry in an archive. Any thread."""
        state: dict[str, Any] = {
            "delivered": dict(zip(_PLACE, self._delivered, strict=True)),
            "ack_floor": dict(zip(_PLACE, self._floor, strict=True)),
        }
        if self._pending:
            rows = struct.iter_unpack("<4q", self._pending)
            state["pending"] = {
                str(seq): {"Sequence": consumer_seq, "Timestamp": ts}
                for seq, consumer_seq, ts, _ in rows
            }
        if self._redelivered:
            state["redelivered"] = {str(seq): n - 1 for seq, n in self._redelivered.items()}
        own = {"next_seq": self._next_seq, "initial": self._initial}
        whole = {"config": self._config, "state": state, "slipstream": own}
        return msgspec.json.encode(whole)


@dataclass
class ArchivedConsumer:
    """A consumer that an archive holds."""

    name: str
    config: ConsumerConfig
    state: _State
    own: _Own | None

    @property
    def is_ephemeral(self) -> bool:
        """Whether it goes when nobody uses it."""
        return not self.config.durable_name

    def position(self, log: Log, created: int) -> bytes:
        """Its position as `apply_state` takes it, among the messages of `log`. Raises
        `CorruptionError`."""
        state, config, last = self.state, self.config, log.last_seq
        delivered, floor = state.delivered, state.ack_floor
        next_seq, initial = delivered.stream_seq + 1, list[int]()
        if self.own is not None:
            next_seq, initial = self.own.next_seq, self.own.initial
        elif config.deliver_policy == "last_per_subject" and not delivered.consumer_seq:
            initial = log.last_per_subject(config.filters)
            next_seq = log.last_seq + 1  # where one has begun, it goes on, and misses nothing
        if delivered.consumer_seq:  # what it was given after the messages were read is not here
            next_seq = min(next_seq, last + 1)
            delivered = _Place(delivered.consumer_seq, min(delivered.stream_seq, last))
            floor = _Place(floor.consumer_seq, min(floor.stream_seq, last))
        asked = {*initial}
        wait = LONGEST_NS if config.ack_policy == "flow_control" else config.ack_wait
        rows: list[int] = []
        for seq, out in sorted((state.pending or {}).items()):
            if seq > last or seq >= next_seq:
                break
            if seq in asked:  # it has not been delivered, and is going to be
                continue
            rows += (seq, out.sequence, out.timestamp, out.timestamp + min(wait, LONGEST_NS))
        again = {seq: n + 1 for seq, n in (state.redelivered or {}).items() if seq <= last}
        try:
            return pack_position(
                created,
                (delivered.consumer_seq, delivered.stream_seq, 0),
                (floor.consumer_seq, floor.stream_seq, 0),
                next_seq,
                struct.pack(f"<{len(rows)}q", *rows),
                again,
                initial,
            )
        except struct.error as error:
            raise CorruptionError(f"consumer {self.name} has a position that cannot be") from error

    def meta(self, position: bytes, created: int) -> bytes:
        """What is kept of it beside its position."""
        kept: dict[str, Any] = {"config": self.config.emit(), "created": created}
        if self.config.deliver_policy in AT_CREATION:
            kept["origin"] = base64.b64encode(position).decode()
        return msgspec.json.encode(kept)


def read_entry(name: str, content: bytes) -> ArchivedConsumer:
    """The consumer of an entry. Raises `CorruptionError`."""
    what = f"consumer {name} of the archive"
    try:
        entry = parse(content, _Entry)
        bounded = decode(msgspec.json.encode(entry.config))
        config: ConsumerConfig = convert(bounded, ConsumerConfig, ConsumerConfig.words, False)
    except (msgspec.MsgspecError, ApiError) as error:
        raise CorruptionError(f"{what} cannot be read: {error}") from error
    if {name, config.durable_name or name, config.name or name} != {name}:
        raise CorruptionError(f"{what} has another name in its configuration")
    config.name = name
    state = entry.state
    pending, redelivered = state.pending or {}, state.redelivered or {}
    counts = [*redelivered.values(), *(out.sequence for out in pending.values())]
    for place in (state.delivered, state.ack_floor):
        counts += [place.consumer_seq, place.stream_seq]
    numbers = [*pending, *redelivered]
    if entry.slipstream is not None:
        numbers += [entry.slipstream.next_seq, *entry.slipstream.initial]
    is_possible = all(0 <= number <= SEQUENCE_MAX for number in numbers)
    if not is_possible or any(not 0 <= count <= COUNT_MAX for count in counts):
        raise CorruptionError(f"{what} names a sequence that cannot be")
    return ArchivedConsumer(name, config, state, entry.slipstream)
