"""The scrub: while the server runs, what is stored is read again, slowly, to find what a disk has
changed since.

A pass goes through all streams in files, in an order that chance decides, so that servers that are
often started anew do not always read the same ones: through their segments, as far as these are
durable, and the copies of their configurations and positions. The commit log comes last. It reads a
piece, beside the batches, and then waits until the rate allows the next. What it finds is reported
as recovery does: in the log, in `/healthz` and by an advisory. Nothing is changed: the copies that
one has are for an operator to choose from, and who reads a damaged message counts it as lost then,
as ever.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from slipstream.engine.commit.state_commit import Reports
from slipstream.engine.loop.timers import Timer
from slipstream.engine.session.host import Host
from slipstream.engine.stream.stream import Stream
from slipstream.log.file_log import FileLog, end_of
from slipstream.log.scrub import CommitLogScrub, CopiesScrub, SegmentScrub, TwoCopies
from slipstream.log.segment import Segment
from slipstream.model.durations import SECOND

FIRST_AFTER = 600 * SECOND  # a server that was just started has other things to read
PASS_EVERY = 24 * 60 * 60 * SECOND  # a pass begins at most so often
STEPS_MAX = 1000  # over streams and segments with nothing to read, in one turn,
BREATH = SECOND // 1000  # and then others have theirs
SEE = "; nothing was changed: see docs/storage.md"
COMMIT_LOG = ("", "", "")  # as a key

Reading = SegmentScrub | CopiesScrub | CommitLogScrub
# What may be damaged: account, stream, and a segment's base or the path of a small file.
Key = tuple[str, str, int | str]


@dataclass(slots=True)
class _Piece:
    """Reads a piece; a job that runs beside the batches."""

    scrub: "Scrub"
    began: int  # ns since the epoch
    reading: Reading
    error: OSError | None = None

    def run(self) -> None:
        """Read, on any thread. Never raises."""
        try:
            self.reading.read()
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
        self._current: Reading | None = None
        self._opened = False  # the segment's file, by this scrub
        self._last_base = 0  # of the stream's segments that this pass has read
        self._owes_copies = False  # of the stream
        self._owes_log = False
        self._pass_began = 0
        self.read_bytes = 0  # ever
        self.pass_bytes = 0  # that the pass under way is to read, as it looked when it began ...
        self.pass_read = 0  # ... and has read
        self.last_pass = 0  # when one ended that has read all, in ns since the epoch; 0: never
        self.damaged: dict[Key, tuple[Reports, str]] = {}  # who was told of it, and what

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
        self._owes_log = True
        self.pass_read = 0
        logs = [stream.log for stream in self._waiting]
        self.pass_bytes = sum(
            log.durable_end(segment)
            for log in logs
            if isinstance(log, FileLog)
            for segment in log.blocks
        )
        self._go_on()

    def _go_on(self) -> None:
        """Read the next piece: of this segment, of the next one, of the next stream, of the log."""
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
        """Have something that is to be read, unless one has to look for it for too long; after the
        last of it there is no stream either."""
        for _ in range(STEPS_MAX):
            stream = self._stream
            if stream is not None and not stream.closed:
                blocks = stream.log.blocks
                at = bisect_right(blocks, self._last_base, key=_base)
                if at < len(blocks):
                    self._last_base = blocks[at].base
                    if self._open(stream, blocks[at]):
                        return
                    continue
                if self._owes_copies:
                    self._owes_copies = False
                    self._current = CopiesScrub(_copies(stream))
                    return
            self._stream = self._waiting.pop() if self._waiting else None
            self._last_base = 0
            self._owes_copies = True
            if self._stream is None:
                self._open_log()
                return

    def _open_log(self) -> None:
        """Begin with the commit log, once in a pass."""
        state = self._engine.state
        if state is None or not self._owes_log:
            return
        self._owes_log = False
        self._current = state.log.scrub()
        if self._current is None and COMMIT_LOG in self.damaged:  # it is being begun anew
            self._resolve(COMMIT_LOG)

    def _open(self, stream: Stream, segment: Segment) -> bool:
        """Begin with a segment; False if its file cannot be opened, or nothing in it is durable."""
        log = stream.log
        assert isinstance(log, FileLog), "what is in memory is not read again"
        log.hand_over()
        end = log.durable_end(segment)
        if not end:
            return False
        places = min(log.durable_seq, end_of(segment)) - segment.base + 1
        self._opened = segment.file is None
        try:
            file = log.reader.file_of(segment)
        except OSError:  # such as too many open files; the next pass tries again
            return False
        self._segment = segment
        self._current = SegmentScrub.of(log.disk, log.directory, file, segment, end, places)
        return True

    def took(self, piece: _Piece) -> None:
        """A piece was read."""
        if self._is_stopped:
            return
        found = piece.reading
        self.read_bytes += found.took
        if isinstance(found, SegmentScrub):
            self._took_segment(found, piece.error)
        elif isinstance(found, CopiesScrub):
            self._took_copies(found, piece.error)
        else:
            self._took_log(found, piece.error)
        self._later(piece.began + found.took * SECOND // self._rate, self._go_on)

    def _took_segment(self, found: SegmentScrub, error: OSError | None) -> None:
        self.pass_read += found.took
        if not self._is_as_it_was(found) or error is not None:
            self._leave()  # removed or written anew meanwhile
        elif found.ended:
            self._judge(found)
            self._leave()

    def _took_copies(self, found: CopiesScrub, error: OSError | None) -> None:
        stream = self._stream
        if stream is None or stream.closed or found.ended or error is not None:
            self._current = None
        if stream is None or stream.closed:
            return
        for file, copies in found.found:
            for path, fault in copies.faults.items():
                if not file.retired:  # else it went meanwhile
                    self._judge_copy(stream, path, fault)

    def _took_log(self, found: CommitLogScrub, error: OSError | None) -> None:
        state = self._engine.state
        if state is None or not state.log.is_as_it_was(found) or error is not None:
            self._current = None  # begun anew meanwhile, with other bytes
        elif found.ended:
            self._current = None
            text = f"the scrub found damage in {found.path}: {found.problem}" + SEE
            self._say(COMMIT_LOG, self._engine, text if found.problem else "")

    def _is_as_it_was(self, found: SegmentScrub) -> bool:
        stream, segment = self._stream, self._segment
        if stream is None or segment is None or stream.closed:
            return False
        log = stream.log
        assert isinstance(log, FileLog), "what is in memory is not read again"
        blocks = log.blocks
        at = bisect_right(blocks, found.base - 1, key=_base)
        return (
            at < len(blocks)
            and blocks[at] is segment
            and segment.file is found.file
            and log.durable_end(segment) >= found.records_end
            and not (found.footed and segment.records_end != found.records_end)
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

    def _is_there(self, account: str, name: str, part: int | str) -> bool:
        if (account, name, part) == COMMIT_LOG:
            return True
        owner = self._engine.accounts.get(account)
        js = owner.jetstream if owner is not None else None
        stream = js.streams.get(name) if js is not None else None
        if stream is None:
            return False
        if isinstance(part, int):
            return any(block.base == part for block in stream.log.blocks)
        path = part.rpartition(".")[0]
        return any(file.path == path and not file.retired for file in _copies(stream))

    # -- what was found ----------------------------------------------------------------------------

    def _judge(self, found: SegmentScrub) -> None:
        """Report what is wrong with a segment, or that nothing is any more."""
        stream = self._stream
        assert stream is not None
        try:
            found.confirm()
        except OSError:
            return  # the next pass tells
        said = found.text()
        # Damage that somebody has run into since is counted as lost, and stays damage.
        if said or not found.is_known:
            self._say_of(stream, found.base, found.path, found.path.rpartition("/")[2], said)

    def _judge_copy(self, stream: Stream, path: str, fault: str) -> None:
        """Report what is wrong with a small file of a stream, or that nothing is any more."""
        below = path.removeprefix(stream.store.path + "/")
        self._say_of(stream, path, path, below, fault)

    def _say_of(self, stream: Stream, part: int | str, path: str, file: str, fault: str) -> None:
        """Say of a file of a stream, which advisories call `file`, what is wrong with it."""
        whose = f"stream '{stream.account.name} > {stream.name}'"
        text = f"{whose}: the scrub found damage in {path}: {fault}" + SEE
        key = (stream.account.name, stream.name, part)
        if self._say(key, stream.js, text if fault else ""):
            stream.js.advisories.damaged(stream.name, f"{file}: {fault}")

    def _say(self, key: Key, told: Reports, text: str) -> bool:
        """Report damage, or with "" that there is none any more. Whether that is news of damage."""
        before = self.damaged.get(key)
        if before is not None:
            if before[1] == text:
                return False
            self._resolve(key)
        if text:
            self.damaged[key] = (told, text)
            told.problem(text)
        return text != ""

    def _resolve(self, key: Key) -> None:
        told, text = self.damaged.pop(key)
        told.resolve(text)


def _copies(stream: Stream) -> list[TwoCopies]:
    """The small files of a stream and its consumers."""
    log = stream.log
    assert isinstance(log, FileLog), "what is in memory is not read again"
    found: list[TwoCopies] = [stream.store.meta, stream.store.letters]
    if log.copies is not None:
        found.append(log.copies)
    for consumer in stream.every_consumer():
        if consumer.store is not None:
            found += [consumer.store.meta, consumer.store.state]
    return found
