"""Fast batches: many messages, acknowledged together as they become durable (ADR-50, second part).

A batch is no transaction: each message is stored as it comes. What a message is to its batch stands
in its reply subject, ``<prefix>.<batch>.<flow>.<gap mode>.<number>.<operation>.$FI``. The publisher
is sent an acknowledgement after so many messages, hears of gaps and errors, and gets an ordinary
acknowledgement for the whole batch at its end.

How many messages go between two acknowledgements is for the server to say: as many as the publisher
asked for, or fewer, because all batches of a stream share a number of messages on their way.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.ingest_checks import (
    HEADER_BYTES_MAX,
    check_headers,
    remove_request_info,
)
from slipstream.engine.stream.retention import check_room_for
from slipstream.errors import StorageError
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_REQUIRED_API_LEVEL
from slipstream.wire.headers import find, without

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

ID_BYTES_MAX = 64
FLOW_DEFAULT = 10  # messages between acknowledgements, where the publisher does not say
FLOW_MAX = 500  # ... of all batches of a stream together
DIGITS_MAX = 18
INFLIGHT_PER_STREAM = 1_000
INFLIGHT_TOTAL = 50_000
TIMEOUT = 10 * SECOND  # after a batch's last message

START, APPEND, COMMIT, END, PING = range(5)


class Place(NamedTuple):
    """What a reply subject says."""

    id: bytes
    flow: int
    goes_on: bool  # after a gap
    number: int
    operation: int


class FastBatch:
    """One that is open."""

    def __init__(self, place: Place, now: int) -> None:
        self.id = place.id
        self.flow = place.flow
        self.goes_on = place.goes_on
        self.number = 0  # of the last message, whether it came or not
        self.acknowledged = 0
        self.messages = 0  # until the next acknowledgement
        self.last_seq = 0  # of the last message stored
        self.touched = now  # when its last message came (ns)
        self.timer: Any = None


class FastBatches:
    """The open batches of one stream."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._open: dict[bytes, FastBatch] = {}
        # The batch that the last message was of, how its reply subjects begin, and the one that
        # its next message will have, if it has no headers and nothing is wrong.
        self._latest: FastBatch | None = None
        self._prefix = self._next = b""

    def stop(self) -> None:
        """Forget all that are open."""
        for batch in list(self._open.values()):
            self._close(batch)

    def take(self, subject: bytes, message: Inbound) -> None:
        """A message with a reply subject that ends in ``.$FI``."""
        reply = message.reply
        try:
            latest = self._latest
            if latest is not None and reply == self._next and self._is_plain(message):
                self._append(latest, subject, message, reply)
            else:
                self._take(subject, message, reply)
        except ApiError as error:
            self._refuse(reply, error)

    def _is_plain(self, message: Inbound) -> bool:
        """Whether nothing has to be looked at but room."""
        config = self._stream.config
        return (
            message.body_start == message.header_start
            and not 0 <= config.max_msg_size < message.end - message.header_start
            and not config.sealed
            and not config.allow_msg_counter
        )

    def _append(self, batch: FastBatch, subject: bytes, message: Inbound, reply: bytes) -> None:
        """Store the message that comes next in the batch; what `_take` does, for most messages."""
        stream = self._stream
        number = batch.number + 1
        batch.touched = stream.clock.now
        try:
            batch.last_seq = stream.store_message(subject, message)
        except (ApiError, StorageError) as failure:
            self._latest = None
            self._fail(batch, _read(reply), reply, _as_api_error(failure))
            return
        stream.last_msg_id = b""
        batch.number = number
        self._next = b"%b%d.1.$FI" % (self._prefix, number + 1)
        if number >= batch.acknowledged + batch.messages:
            self._acknowledge_if_due(batch, reply)

    def _expect(self, batch: FastBatch, reply: bytes) -> None:
        """A message of this batch was stored: the next one is probably of it, too."""
        self._latest = batch
        self._prefix = reply.rsplit(b".", 3)[0] + b"."
        self._next = b"%b%d.1.$FI" % (self._prefix, batch.number + 1)

    def _take(self, subject: bytes, message: Inbound, reply: bytes) -> None:
        self._latest = None
        place = _read(reply)
        if 0 <= self._stream.config.max_msg_size < message.end - message.header_start:
            raise ApiError(
                ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM
            )  # as if it had never come: the next message shows the gap
        if self._stream.js.refused_level(message):
            batch = self._open.get(place.id)
            if batch is not None:
                self._close(batch)
            raise ApiError(ErrorCode.REQUIRED_API_LEVEL)
        batch = self._open.get(place.id)
        if batch is None:
            batch = self._begin(place)
            if place.operation == START:
                self._acknowledge(batch, reply)
        batch.touched = self._stream.clock.now
        if place.operation == PING:
            if place.number <= batch.number or self._pass_gap(batch, place.number + 1, reply):
                self._advance(batch)
                self._acknowledge(batch, reply)
            return
        if place.number != batch.number + 1 and not self._pass_gap(batch, place.number, reply):
            return
        if place.operation == END:
            self._finish(batch, reply)
            return
        self._store(batch, place, subject, message)

    def _begin(self, place: Place) -> FastBatch:
        engine = self._stream.engine
        if place.operation not in (START, COMMIT) or place.number != 1:
            raise ApiError(ErrorCode.BATCH_PUBLISH_UNKNOWN_BATCH_ID)
        if len(self._open) >= INFLIGHT_PER_STREAM or engine.staged.fast >= INFLIGHT_TOTAL:
            raise ApiError(ErrorCode.BATCH_PUBLISH_TOO_MANY_INFLIGHT)
        batch = self._open[place.id] = FastBatch(place, self._stream.clock.now)
        engine.staged.fast += 1
        batch.messages = self._most(batch) if len(self._open) == 1 else 1
        batch.timer = engine.timers.after(TIMEOUT, lambda: self._look_at(batch))
        return batch

    def _most(self, batch: FastBatch) -> int:
        return max(min(FLOW_MAX // len(self._open), batch.flow), 1)

    def _look_at(self, batch: FastBatch) -> None:
        """Forget a batch for which nothing has come for a while; what it stored stays."""
        engine = self._stream.engine
        due = batch.touched + TIMEOUT
        if due <= engine.clock.now:
            self._close(batch)
        else:
            batch.timer = engine.timers.at(due, lambda: self._look_at(batch))

    def _close(self, batch: FastBatch) -> None:
        del self._open[batch.id]
        if self._latest is batch:
            self._latest = None
        batch.timer.cancel()
        self._stream.engine.staged.fast -= 1

    # -- storing ---------------------------------------------------------------------------------

    def _store(self, batch: FastBatch, place: Place, subject: bytes, message: Inbound) -> None:
        reply = message.reply
        duplicate_of = 0
        try:
            seq = self._publish(subject, message)
            if seq < 0:
                duplicate_of = -seq
            else:
                batch.last_seq = seq
        except (ApiError, StorageError) as failure:
            self._fail(batch, place, reply, _as_api_error(failure))
            return
        batch.number = place.number
        if place.operation == COMMIT:
            if duplicate_of:
                self._acknowledge_if_due(batch, reply)
            self._finish(batch, reply, duplicate_of if place.number == 1 else 0)
        else:
            self._expect(batch, reply)
            self._acknowledge_if_due(batch, reply)

    def _publish(self, subject: bytes, message: Inbound) -> int:
        """Store a message; its sequence, or that of the one that it repeats, below 0."""
        stream = self._stream
        if stream.config.sealed:
            raise ApiError(ErrorCode.STREAM_SEALED)
        if message.body_start - message.header_start > HEADER_BYTES_MAX:
            raise ApiError(ErrorCode.STREAM_HEADER_EXCEEDS_MAXIMUM)
        if find(message.data, message.header_start, message.body_start, NATS_REQUIRED_API_LEVEL):
            _replace_header(message, without(message.header(), NATS_REQUIRED_API_LEVEL))
        verdict = check_headers(stream, subject, message)
        if verdict.duplicate_of:
            if stream.outcome is not None:
                stream.outcome.duplicate_of = verdict.duplicate_of
            return -verdict.duplicate_of
        remove_request_info(message)
        check_room_for(stream, subject, message, verdict.rollup != "")
        return int(stream.store_checked(subject, message, verdict))

    def _fail(self, batch: FastBatch, place: Place, reply: bytes, error: ApiError) -> None:
        """A message of a batch is refused."""
        if not batch.goes_on and place.number == 1:
            self._close(batch)
            self._refuse(reply, error)
            return
        self._note(error)
        self._say(reply, {"type": "err", "seq": place.number, "error": error.body})
        if place.operation == COMMIT or not batch.goes_on:
            self._finish(batch, reply)
        else:
            batch.number = place.number

    def _pass_gap(self, batch: FastBatch, number: int, reply: bytes) -> bool:
        """Messages are missing before `number`, or it was there before: say so. Whether the batch
        goes on with it."""
        expected = batch.number + 1
        self._say(reply, {"type": "gap", "last_seq": expected, "seq": number})
        if batch.goes_on and number > expected:
            batch.number = number - 1
            return True
        self._finish(batch, reply)
        return False

    # -- answering -------------------------------------------------------------------------------

    def _acknowledge_if_due(self, batch: FastBatch, reply: bytes) -> None:
        if self._advance(batch):
            self._acknowledge(batch, reply)

    def _advance(self, batch: FastBatch) -> bool:
        """Whether an acknowledgement is due; then the next one is due later, and later still."""
        if batch.number < batch.acknowledged + batch.messages:
            return False
        batch.acknowledged = batch.number
        batch.messages = min(2 * batch.messages, self._most(batch))
        return True

    def _acknowledge(self, batch: FastBatch, reply: bytes) -> None:
        self._say(reply, {"type": "ack", "seq": batch.acknowledged, "msgs": batch.messages})

    def _refuse(self, reply: bytes, error: ApiError) -> None:
        """Answer as an ordinary publish is refused, after what was promised before."""
        self._note(error)
        self._stream.promise(reply, 0, self._stream.js.refusal(self._stream.name, error))

    def _note(self, error: ApiError) -> None:
        if self._stream.outcome is not None:
            self._stream.outcome.error = error

    def _say(self, reply: bytes, body: dict[str, Any]) -> None:
        """Send `body` once what it speaks of is durable."""
        self._stream.promise(reply, 0, msgspec.json.encode(body))

    def _finish(self, batch: FastBatch, reply: bytes, duplicate_of: int = 0) -> None:
        """The batch ends with what it has."""
        self._close(batch)
        name = msgspec.json.encode(batch.id.decode("utf-8", "replace"))
        end = b',"batch":%b,"count":%d}' % (name, batch.number)
        if duplicate_of:
            end = b',"duplicate":true' + end
        self._stream.promise(reply, duplicate_of or batch.last_seq, end)


def _read(reply: bytes) -> Place:
    """What a reply subject says. Raises `ApiError`."""
    tokens = reply.split(b".")
    if len(tokens) < 7:  # the prefix has one at least
        raise ApiError(ErrorCode.BATCH_PUBLISH_INVALID_PATTERN)
    id, flow, mode, number, operation = tokens[-6:-1]
    if len(id) > ID_BYTES_MAX:
        raise ApiError(ErrorCode.BATCH_PUBLISH_INVALID_BATCH_ID)
    place = Place(id, _number(flow), mode == b"ok", _number(number), _number(operation))
    if not id or mode not in (b"ok", b"fail") or place.number < 1:
        raise ApiError(ErrorCode.BATCH_PUBLISH_INVALID_PATTERN)
    if not START <= place.operation <= PING:
        raise ApiError(ErrorCode.BATCH_PUBLISH_INVALID_PATTERN)
    if (place.operation == START) != (place.number == 1) and place.operation not in (COMMIT, PING):
        if place.operation != END or place.number == 1:
            raise ApiError(ErrorCode.BATCH_PUBLISH_INVALID_PATTERN)
    return place._replace(flow=min(place.flow, 65_535) if place.flow > 0 else FLOW_DEFAULT)


def _as_api_error(failure: ApiError | StorageError) -> ApiError:
    return (
        failure
        if isinstance(failure, ApiError)
        else ApiError(ErrorCode.STREAM_STORE_FAILED, err=str(failure))
    )


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= DIGITS_MAX else -1


def _replace_header(message: Inbound, block: bytes) -> None:
    message.data = block + message.body()
    message.header_start = 0
    message.body_start = len(block)
    message.end = len(message.data)
