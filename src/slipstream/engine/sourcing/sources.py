"""Sources: streams whose messages a stream gathers, among what it may be published itself.

A message gets a sequence and a time of this stream. Its `Nats-Stream-Source` header says where it
came from, so the stream's own messages tell after a restart where each source goes on: behind the
last message that came from it. They are read from the last one backwards, a bounded number in each
turn, until every source is found.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.loop.turn import ROUND
from slipstream.engine.protocol.options import SECOND
from slipstream.engine.protocol.rfc3339 import time_text
from slipstream.engine.session.message import Inbound
from slipstream.engine.sourcing.feed import Feed, without_conditions
from slipstream.engine.sourcing.storing import store
from slipstream.engine.stream.config import StreamConfig, StreamSource
from slipstream.engine.stream.counters import add_sourced
from slipstream.engine.stream.upstream_checks import index_name
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.wire.headers import find, with_fields

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

ORIGIN = b"Nats-Stream-Source"
READ_PER_TURN: _int = 2_000  # messages looked at for where sources go on
READ_STEPS: _int = ROUND // 4
READ_AGAIN_NS: _int = SECOND  # after the disk could not be read


class Source(Feed):
    """One source of `stream`."""

    kind = "SRC"
    letter = "S"
    metadata = "_nats.src"
    level = b"5"
    requires_flow_acks = 10217

    def __init__(self, stream: "Stream", source: StreamSource) -> None:
        super().__init__(stream, source)
        name, filters, dests = self.index.split(" ")
        self._head = name.encode() + b" "
        self._middle = f" {filters} {dests} ".encode()
        self.from_time = 0  # with no message to go by: when the stream was last stored to (ns)

    def start(self) -> dict[str, Any]:
        source = self.source
        if self.position:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self.position + 1}
        if source.opt_start_seq:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": source.opt_start_seq}
        start_time = source.opt_start_time
        if self.from_time:
            start_time = time_text(self.from_time)
        if start_time:
            return {"deliver_policy": "by_start_time", "opt_start_time": start_time}
        return {"deliver_policy": "all"}

    def _request_header(self) -> bytes:
        fields = [
            (b"Nats-Required-Api-Level", self.level),
            (b"Nats-Stream-Identity", self.identity),
        ]
        return with_fields(b"", fields)

    def begun(self, delivered: _int, pending: _int) -> None:
        """The position moves with what is stored."""

    def take(self, seq: _int, ts: _int, message: Inbound) -> None:
        stream = self.stream
        subject = message.subject
        origin = b"%b%d%b%b" % (self._head, seq, self._middle, subject)
        if self.identity:
            origin += b" " + self.identity
        block = b""
        message_id = b""
        if message.body_start > message.header_start:
            block = without_conditions(message.header(), ORIGIN)
            if stream.dedupe.window:
                start, end = message.header_start, message.body_start
                message_id = find(message.data, start, end, b"Nats-Msg-Id") or b""
                if message_id and stream.dedupe.find(message_id):
                    return
        block = with_fields(block, [(ORIGIN, origin)])
        taken = Inbound(self.subject_of(subject), b"", block, message.body())
        if stream.config.allow_msg_counter:
            add_sourced(stream, taken, self._head[:-1], subject)
        store(stream, taken.subject, taken, 0, message_id)
        self.from_time = 0

    def replaced(self) -> None:
        self.position = 0
        self.identity = b""
        self.from_time = 0

    def info(self) -> dict[str, Any]:
        shown = super().info()
        if self.position:
            shown["seq"] = self.position
        if self.source.filter_subject:
            shown["filter_subject"] = self.source.filter_subject
        return shown


class Sources:
    """All sources of `stream`; `is_restored`: it was there before the server started."""

    def __init__(self, stream: "Stream", is_restored: bool) -> None:
        self._stream = stream
        self._feeds: dict[str, Source] = {}  # by index name
        self._timer: Any = None
        self._wanted: dict[str, Source] = {}  # not found in the stream's messages so far
        self._read_seq = 0  # the next to look at
        self._record = Record()
        self._is_restored = is_restored
        self.configured()

    def configured(self) -> None:
        """The stream's configuration has changed: begin what is new, end what is there no more."""
        config: StreamConfig = self._stream.config
        asked = {index_name(source): source for source in config.sources}
        for index, feed in list(self._feeds.items()):
            if asked.get(index) != feed.source:
                feed.stop(delete=True)
                self._wanted.pop(index, None)
                del self._feeds[index]
        fresh = [index for index in asked if index not in self._feeds]
        self._feeds = {
            index: self._feeds.get(index) or Source(self._stream, source)
            for index, source in asked.items()
        }
        if fresh:
            self._wanted |= {index: self._feeds[index] for index in fresh}
            self._read_seq = self._stream.log.last_seq
            self._watch(0)

    def _watch(self, delay: _int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._stream.engine.timers.after(delay, self._tick)

    def _tick(self) -> None:
        """Read on, then let begin what was found."""
        self._timer = None
        if self._stream.closed:
            return
        try:
            done = self._read_back()
        except (OSError, StorageError):
            self._watch(READ_AGAIN_NS)
            return
        if not done:
            self._watch(0)
            return
        self._begin_wanted()

    def _begin_wanted(self) -> None:
        """Nothing is known of what was not found: it begins where its configuration says."""
        wanted, self._wanted = self._wanted, {}
        log = self._stream.log
        for feed in wanted.values():
            if self._is_restored and log.first_seq > 1 and log.last_ts:
                feed.from_time = log.last_ts  # its messages may have gone meanwhile
            feed.begin()
        self._is_restored = False

    def _read_back(self) -> bool:
        """Look at some more messages, the newest first; whether that was all."""
        log = self._stream.log
        record = self._record
        left = READ_PER_TURN
        self._stream.turn.spent += READ_STEPS
        for block in reversed(list(log.blocks)):
            if block.base > self._read_seq:
                continue
            if block.live == 0 or not block.has_headers:
                self._read_seq = block.base - 1
                continue
            while self._read_seq >= max(block.base, log.first_seq):
                if not left:
                    return False
                left -= 1
                if log.read(self._read_seq, record):
                    self._note(record)
                    if not self._wanted:
                        return True
                self._read_seq -= 1
        return True

    def _note(self, record: Record) -> None:
        """A message says where one of the sources goes on."""
        origin = find(record.data, record.header_start, record.body_start, ORIGIN)
        if not origin:
            return
        words = origin.decode("utf-8", "surrogateescape").split(" ")
        if len(words) < 4 or not words[1].isdecimal():
            return
        feed = self._wanted.pop(" ".join((words[0], words[2], words[3])), None)
        if feed is not None:
            feed.position = int(words[1])
            feed.identity = words[5].encode() if len(words) > 5 else b""
            feed.begin()

    def info(self) -> list[dict[str, Any]]:
        """What is shown of the sources."""
        return [feed.info() for feed in self._feeds.values()]

    def stop(self, delete: bool = False) -> None:
        """Take nothing more; with `delete` the durable consumers that were made for them go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for feed in self._feeds.values():
            feed.stop(delete)
