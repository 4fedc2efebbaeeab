"""The sources of a stream, and where each of them goes on.

After a restart the stream's own messages tell that: after the last message that came from a
source. They are read from the last one backwards, a bounded number in each turn, until every source
is found.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.loop.turn import ROUND
from slipstream.engine.sourcing.source import Source
from slipstream.engine.stream.config import StreamConfig
from slipstream.engine.stream.upstream_checks import index_name
from slipstream.errors import StorageError
from slipstream.log.record import Record
from slipstream.model.durations import SECOND
from slipstream.model.header_fields import NATS_STREAM_SOURCE
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamSourceInfo
    from slipstream.engine.stream.stream import Stream

READ_PER_TURN = 2_000  # messages looked at for where sources go on
READ_STEPS = ROUND // 4
APART_NS = SECOND // 1_000  # between the first requests of two sources
BEGUN_MAX = 30_000  # after so many it begins at the front again
READ_AGAIN_NS = SECOND  # after the disk could not be read


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
        self._begun = 0  # sources so far
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

    def _watch(self, delay: int) -> None:
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
            self._begin(feed)
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
        origin = find(record.data, record.header_start, record.body_start, NATS_STREAM_SOURCE)
        if not origin:
            return
        words = origin.decode("utf-8", "surrogateescape").split(" ")
        if len(words) < 4 or not words[1].isdecimal():
            return
        feed = self._wanted.pop(" ".join((words[0], words[2], words[3])), None)
        if feed is not None:
            feed.position = int(words[1])
            feed.identity = words[5].encode() if len(words) > 5 else b""
            self._begin(feed)

    def _begin(self, feed: Source) -> None:
        """Follow a source: one after the other, so that many do not ask at the same time."""
        feed.begin(self._begun % BEGUN_MAX * APART_NS)
        self._begun += 1

    def info(self) -> "list[StreamSourceInfo]":
        """What is shown of the sources."""
        return [feed.info() for feed in self._feeds.values()]

    def stop(self, delete: bool = False) -> None:
        """Take nothing more; with `delete` the durable consumers that were made for them go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for feed in self._feeds.values():
            feed.stop(delete)
