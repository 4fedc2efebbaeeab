"""The scrub: while the server runs, what is stored is read again, slowly, to find what a disk has
changed since.

A pass goes through the closed segments of all streams in files, in an order that chance decides, so
that servers that are often started anew do not always read the same ones. It reads a piece, beside
the batches, and then waits until the rate allows the next. What it finds is reported as recovery
does: in the log, in `/healthz` and by an advisory. Nothing is changed: the copies that one has are
for an operator to choose from, and who reads a damaged message counts it as lost then, as ever.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.engine.loop.timers import Timer
from slipstream.engine.session.host import Host
from slipstream.engine.stream.owner import Owner
from slipstream.engine.stream.stream import Stream
from slipstream.log.file_log import FileLog
from slipstream.log.scrub import SegmentScrub
from slipstream.log.segment import Segment
from slipstream.model.durations import SECOND

FIRST_AFTER = 600 * SECOND  # a server that was just started has other things to read
PASS_EVERY = 24 * 60 * 60 * SECOND  # a pass begins at most so often
STEPS_MAX = 1000  # over streams and segments with nothing to read, in one turn,
BREATH = SECOND // 1000  # and then others have theirs


@dataclass(slots=True)
class _Piece:
    """Reads a piece of a segment; a job that runs beside the batches."""

    scrub: "Scrub"
    began: int  # ns since the epoch
    segment: SegmentScrub
    error: OSError | None = None

    def run(self) -> None:
        """Read, on any thread. Never raises."""
        try:
            self.segment.read()
        except OSError as error:
            self.error = error

    def finish(self) -> None:
        """Go on, on the loop."""
        self.scrub.took(self)


def _base(segment: Segment) -> int:
    return segment.base


class Scrub:
    """Reads the streams of `engine` at `rate` bytes a second, from `start` to `stop`."""

    def __init__(self, engine: Host, rate: int) -> None:
        self._engine = engine
        self._rate = rate
        self._timer: Timer | None = None
        self._is_stopped = False
        self._waiting: list[Stream] = []
        self._stream: Stream | None = None
        self._segment: Segment | None = None  # of it, that is being read
        self._current: SegmentScrub | None = None
        self._opened = False  # by this scrub
        self._last_base = 0  # of the stream's segments that this pass has read
        self._pass_began = 0
        self.read_bytes = 0  # ever
        self.pass_bytes = 0  # that the pass under way is to read, as it looked when it began ...
        self.pass_read = 0  # ... and has read
        self.last_pass = 0  # when one ended that has read all, in ns since the epoch; 0: never
        # Segments that are damaged, by account, stream and base: whose they are, what was said.
        self.damaged: dict[tuple[str, str, int], tuple[Owner, str]] = {}

    def start(self) -> None:
        """Begin the first pass after a while."""
        self._later(self._engine.timers.now + FIRST_AFTER, self._begin)

    def stop(self) -> None:
        """Read nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def set_rate(self, rate: int) -> None:
        """Read so many bytes a second from the next piece on."""
        self._rate = rate

    @property
    def progress(self) -> float:
        """How much of its pass it has read, from 0 to 1; 1 also between two."""
        if self._current is None and not self._waiting:
            return float(self.last_pass > 0)
        return min(self.pass_read / max(self.pass_bytes, 1), 1.0)

    def _later(self, when: int, call: Callable[[], None]) -> None:
        self._timer = self._engine.timers.at(when, call)

    # -- a pass ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._pass_began = self._engine.timers.now
        self._waiting = [
            stream
            for account in self._engine.accounts.values()
            if account.jetstream is not None
            for stream in account.jetstream.streams.values()
            if isinstance(stream.log, FileLog)
        ]
        self._engine.random.shuffle(self._waiting)
        self.pass_read = 0
        self.pass_bytes = sum(
            segment.records_end
            for stream in self._waiting
            for segment in stream.log.blocks
            if segment.footed
        )
        self._go_on()

    def _go_on(self) -> None:
        """Read the next piece: of this segment, of the next one, of the next stream."""
        if self._is_stopped:
            return
        if self._current is None:
            self._open_next()
        now = self._engine.timers.now
        if self._current is not None:
            self._engine.commit.run_aside(_Piece(self, now, self._current))
        elif self._stream is not None:
            self._later(now + BREATH, self._go_on)
        else:
            self._end()

    def _open_next(self) -> None:
        """Have a segment that is to be read, unless one has to look for it for too long; after the
        last one there is no stream either."""
        for _ in range(STEPS_MAX):
            stream = self._stream
            if stream is not None and not stream.closed:
                blocks = stream.log.blocks
                at = bisect_right(blocks, self._last_base, key=_base)
                if at < len(blocks):
                    self._last_base = blocks[at].base
                    if blocks[at].footed and self._open(stream, blocks[at]):
                        return
                    continue
            self._stream = self._waiting.pop() if self._waiting else None
            self._last_base = 0
            if self._stream is None:
                return

    def _open(self, stream: Stream, segment: Segment) -> bool:
        """Begin with a segment; False if its file cannot be opened."""
        log = stream.log
        assert isinstance(log, FileLog), "what is in memory is not read again"
        self._opened = segment.file is None
        try:
            file = log.reader.file_of(segment)
        except OSError:  # such as too many open files; the next pass tries again
            return False
        self._segment = segment
        self._current = SegmentScrub.of(log.disk, log.directory, file, segment)
        return True

    def took(self, piece: _Piece) -> None:
        """A piece was read."""
        if self._is_stopped:
            return
        found = piece.segment
        self.read_bytes += found.took
        self.pass_read += found.took
        if not self._is_as_it_was(found) or piece.error is not None:
            self._leave()  # removed or written anew meanwhile
        elif found.ended:
            self._judge(found)
            self._leave()
        self._later(piece.began + found.took * SECOND // self._rate, self._go_on)

    def _is_as_it_was(self, found: SegmentScrub) -> bool:
        stream, segment = self._stream, self._segment
        if stream is None or segment is None or stream.closed:
            return False
        blocks = stream.log.blocks
        at = bisect_right(blocks, found.base - 1, key=_base)
        return (
            at < len(blocks)
            and blocks[at] is segment
            and segment.file is found.file
            and segment.records_end == found.records_end
        )

    def _leave(self) -> None:
        """Be done with a segment, and with its file unless somebody else needs it."""
        segment, self._segment, self._current = self._segment, None, None
        if self._opened and segment is not None and segment.ids is None and not segment.pins:
            segment.let_go()

    def _end(self) -> None:
        now = self._engine.timers.now
        self.last_pass = now
        for key in [key for key in self.damaged if not self._is_there(*key)]:
            self._resolve(key)
        self._later(max(self._pass_began + PASS_EVERY, now + SECOND), self._begin)

    def _is_there(self, account: str, stream: str, base: int) -> bool:
        owner = self._engine.accounts.get(account)
        js = owner.jetstream if owner is not None else None
        found = js.streams.get(stream) if js is not None else None
        return found is not None and any(block.base == base for block in found.log.blocks)

    # -- what was found ----------------------------------------------------------------------------

    def _judge(self, found: SegmentScrub) -> None:
        """Report what is wrong with a segment, or that nothing is any more."""
        stream = self._stream
        assert stream is not None
        try:
            found.confirm()
        except OSError:
            return  # the next pass tells
        key = (stream.account.name, stream.name, found.base)
        before = self.damaged.get(key)
        said = found.text()
        if not said:
            # Damage that somebody has run into since is counted as lost, and stays damage.
            if before is not None and not found.is_known:
                self._resolve(key)
            return
        text = (
            f"stream '{stream.account.name} > {stream.name}': the scrub found damage in "
            f"{found.path}: {said}; nothing was changed: see docs/storage.md"
        )
        if before is not None:
            if before[1] == text:
                return
            self._resolve(key)
        self.damaged[key] = (stream.js, text)
        stream.js.problem(text)
        file = found.path.rpartition("/")[2]
        stream.js.advisories.damaged(stream.name, f"{file}: {said}")

    def _resolve(self, key: tuple[str, str, int]) -> None:
        js, text = self.damaged.pop(key)
        js.resolve(text)
