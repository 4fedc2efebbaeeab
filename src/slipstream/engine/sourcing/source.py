"""A source: one of the streams whose messages a stream gathers.

A message gets a sequence and a time of this stream. Its `Nats-Stream-Source` header says where it
came from: the upstream's name, the sequence there, the filters and what they make of subjects, the
subject there, and which stream of that name it was.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.protocol.configurations import StreamSource
from slipstream.engine.session.message import Inbound
from slipstream.engine.sourcing.feed import Feed, without_conditions
from slipstream.engine.sourcing.storing import store
from slipstream.engine.stream.counters import add_sourced
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_MSG_ID,
    NATS_PREFIX,
    NATS_STREAM_IDENTITY,
    NATS_STREAM_SOURCE,
)
from slipstream.model.times import time_text
from slipstream.wire.headers import count_prefix, find, with_fields

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamSourceInfo
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type


class Source(Feed):
    """One source of `stream`."""

    kind = "SRC"
    letter = "S"
    metadata = "_nats.src"
    levels = (b"5", b"4", b"")
    requires_flow_acks = ErrorCode.SOURCE_CONSUMER_REQUIRES_ACK_FC

    def __init__(self, stream: "Stream", source: StreamSource) -> None:
        super().__init__(stream, source)
        name, filters, dests = self.index.split(" ")
        self._head = name.encode() + b" "
        self._middle = f" {filters} {dests} ".encode()
        self.from_time = 0  # with no message to go by: when the stream was last stored to (ns)
        self._taken = Inbound()
        self._counts = stream.config.allow_msg_counter

    def start(self) -> dict[str, Any]:
        if self.position:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self.position + 1}
        if self.from_time and not self.source.opt_start_seq:
            return {"deliver_policy": "by_start_time", "opt_start_time": time_text(self.from_time)}
        return super().start()

    def _request_header(self) -> bytes:
        block = super()._request_header()
        if self._level_at:  # an upstream's server that knows of no identities
            return block
        return with_fields(block, [(NATS_STREAM_IDENTITY, self.identity)])

    def begun(self, delivered: _int, pending: _int) -> None:
        """The position moves with what is stored."""

    def take(self, seq: _int, ts: _int, message: Inbound) -> None:
        stream = self.stream
        subject = message.subject
        origin = b"%b%d%b%b%b" % (self._head, seq, self._middle, subject, self._tail())
        block = b""
        message_id = b""
        if message.body_start > message.header_start:
            block = message.header()
            start, end = message.header_start, message.body_start
            if count_prefix(message.data, start, end, NATS_PREFIX):
                if stream.dedupe.window:
                    message_id = find(message.data, start, end, NATS_MSG_ID) or b""
                    if message_id and stream.dedupe.find(message_id):
                        return
                block = without_conditions(block, NATS_STREAM_SOURCE)
        # The block's last line is empty: the origin goes before it.
        head = block[: len(block) - 2] if block else b"NATS/1.0\r\n"
        block = b"%b%b: %b\r\n\r\n" % (head, NATS_STREAM_SOURCE, origin)
        taken = self._taken
        taken.subject = self.subject_of(subject)
        taken.data = block + message.body()
        taken.header_start = 0
        taken.body_start = len(block)
        taken.end = len(taken.data)
        if self._counts:
            add_sourced(stream, taken, self._head[:-1], subject)
        store(stream, taken.subject, taken, 0, message_id)
        self.from_time = 0

    def _tail(self) -> bytes:
        """What follows the subject in an origin."""
        return b" " + self.identity if self.identity else b""

    def replaced(self) -> None:
        self.position = 0
        self.identity = b""
        self.from_time = 0

    def info(self) -> "StreamSourceInfo":
        shown = super().info()
        if self.position:
            shown["seq"] = self.position
        if self.source.filter_subject:
            shown["filter_subject"] = self.source.filter_subject
        return shown
