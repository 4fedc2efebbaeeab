"""Reading again what is stored, a piece at a time, to find what a disk has changed since.

Of a segment every record's checksum is computed anew; of a closed one then the checksums of the
footer, and their numbers are compared. Of one without a footer, such as the one that is written to,
what is durable is read. Of the commit log the file that is written to is read as far as that, and
small content in two copies is compared with what was written. All of it changes nothing, and
remembers nothing of what it reads: the pieces come from the device, not from the page cache, and do
not stay there.
"""

import errno
from dataclasses import dataclass, field
from typing import Protocol

from slipstream.errors import CorruptionError, StorageError
from slipstream.log.commit_entry import HEAD_SIZE, Head, check_entry, size_of_entry
from slipstream.log.damage import kept_aside
from slipstream.log.disk import Disk, File
from slipstream.log.record import (
    ERASED,
    FIXED_SIZE,
    MESSAGE,
    Record,
    decode,
    length_at,
    next_whole,
)
from slipstream.log.segment import HEADER_SIZE, Segment, check_columns, decode_header, read_footer

PIECE_BYTES = 256 * 1024  # read at a time; its records hold up other threads for half a millisecond
COPIES_AT_ONCE = 32  # small files that are read at a time ...
COPY_BYTES_MIN = 4096  # ... each of which is as much work as so many bytes, at the least


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of a segment that are not what was written."""

    offset: int
    size: int
    first_seq: int = 0  # of the messages that are or were there; 0: none
    last_seq: int = 0

    def text(self) -> str:
        """The damage in words."""
        where = f"{self.size} bytes from byte {self.offset} on"
        if not self.first_seq:
            return f"{where}, where no message is"
        if self.first_seq == self.last_seq:
            return f"{where}, where message {self.first_seq} is or was"
        return f"{where}, where messages {self.first_seq} to {self.last_seq} are or were"


@dataclass(slots=True)
class SegmentScrub:
    """One segment on its way through the scrub, up to its byte `records_end`; `read` may run on any
    thread."""

    disk: Disk
    directory: str  # of the log
    file: File
    base: int
    salt: int
    format: int
    records_end: int
    path: str
    footed: bool = True
    places: int = 0  # that are known of one without a footer
    at: int = 0  # read so far, in bytes
    holes: list[Hole] = field(default_factory=list)
    is_known: bool = False  # some of it is damage that was set aside before
    took: int = 0  # bytes, by the last `read`
    problem: str = ""  # of the header, the footer or the disk, which do not belong to one message
    _place: int = 0  # of the next message
    _messages: int = 0

    @staticmethod
    def of(
        disk: Disk, directory: str, file: File, segment: Segment, end: int = 0, places: int = 0
    ) -> "SegmentScrub":
        """Of a segment whose file is open. One without a footer is read to its byte `end`, a
        batch's, and has so many places until there."""
        return SegmentScrub(
            disk,
            directory,
            file,
            segment.base,
            segment.salt,
            segment.format,
            end or segment.records_end,
            segment.path,
            segment.footed,
            places,
        )

    @property
    def ended(self) -> bool:
        """Whether all of it was read."""
        return self.at >= self.records_end or self.problem != ""

    def read(self) -> None:
        """Read the next piece, and after the last one the footer, if there is one. Blocks; raises
        OSError."""
        self.took = 0
        try:
            if self.at < HEADER_SIZE:
                self._read_header()
            if not self.problem:
                self._read_piece()
            if self.footed and self.at >= self.records_end and not self.problem:
                self._read_footer()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.problem = f"the disk does not read it near byte {self.at}: {error.strerror}"
        except CorruptionError as error:
            self.problem = str(error)

    def _read_header(self) -> None:
        try:
            header = decode_header(self.file.pread_stored(0, HEADER_SIZE))
        except CorruptionError as error:
            self.problem = str(error)
            return
        if (header.base, header.salt, header.format) != (self.base, self.salt, self.format):
            self.problem = "its header is that of another segment"
        self.at = HEADER_SIZE

    def _read_piece(self) -> None:
        start = self.at
        rest = self.records_end - start
        data = self._bytes(start, PIECE_BYTES)
        at = 0
        record = Record()
        while at < len(data):
            end = decode(data, at, self.salt, 0, record)
            if end and record.seq >= self._place:
                if record.kind in (MESSAGE, ERASED):
                    self._place = record.seq + 1
                    self._messages += 1
                at = end
                continue
            cut = at + max(length_at(data, at), FIXED_SIZE)
            if not end and len(data) < cut <= rest:
                if at:
                    break  # the next piece begins with it
                data = self._bytes(start, cut)
            elif len(data) < rest:
                data = self._bytes(start, rest)  # damage may go on for long
            else:
                at = self._skip(data, at, start)
        self.at = start + at

    def _skip(self, data: bytes, at: int, start: int) -> int:
        """Note what is wrong at `at`; where the next whole record begins."""
        following = next_whole(data, at, self.salt, self._place)
        end = len(data) if following < 0 else following
        first, last = self.base + self._place, 0
        record = Record()
        if following >= 0 and decode(data, following, self.salt, 0, record):
            last = self.base + record.seq - 1
            self._place = record.seq
        elif self._place_end() > self._place:
            last = self.base + self._place_end() - 1
        hole = Hole(start + at, end - at, first if last >= first else 0, max(last, 0))
        if kept_aside(self.disk, self.directory, self.base, hole.offset, hole.size):
            self.is_known = True
        else:
            self.holes.append(hole)
        return end

    def _place_end(self) -> int:
        """How many places there are; 0 if the footer cannot be read that knows it."""
        if not self.footed:
            return self.places
        try:
            return read_footer(self.file, self._as_segment()).places
        except CorruptionError:
            return 0

    def _read_footer(self) -> None:
        try:
            footer = read_footer(self.file, self._as_segment())
            check_columns(self.file, footer)
        except CorruptionError as error:
            self.problem = str(error)
            return
        if footer.records_end != self.records_end:
            self.problem = "its footer is that of another version of it"
        elif self._messages < footer.live and not (self.holes or self.is_known):
            self.problem = (
                f"of {footer.live} messages that its footer knows {self._messages} are there"
            )

    def _as_segment(self) -> Segment:
        segment = Segment(self.base, self.path)
        segment.salt, segment.format = self.salt, self.format
        return segment

    def _bytes(self, offset: int, size: int) -> bytes:
        wanted = min(size, self.records_end - offset)
        data = self.file.pread_stored(offset, wanted)
        self.took += len(data)
        if len(data) < wanted:
            end = offset + len(data)
            raise CorruptionError(f"it ends at byte {end}; its records go to {self.records_end}")
        return data

    def confirm(self) -> None:
        """Look once more at what was found, with nobody writing meanwhile: a message that was
        being destroyed on request looked torn. Raises OSError."""
        self.holes = [hole for hole in self.holes if not self._is_whole(hole)]

    def _is_whole(self, hole: Hole) -> bool:
        data = self.file.pread(hole.offset, hole.size)
        at = 0
        record = Record()
        while at < len(data):
            at = decode(data, at, self.salt, self.base, record)
            if not at or record.seq < hole.first_seq:
                return False
        return True

    def text(self) -> str:
        """What is wrong with it, in words; "" for nothing."""
        found = [hole.text() for hole in self.holes[:3]]
        if len(self.holes) > 3:
            found.append(f"{len(self.holes) - 3} more places")
        return "; ".join([*found, *([self.problem] if self.problem else [])])


@dataclass(slots=True)
class Recheck:
    """How copies were found when they were read again."""

    sizes: list[int] = field(default_factory=list)  # of the files, in bytes
    faults: dict[str, str] = field(default_factory=dict)  # by path; "" for none


class TwoCopies(Protocol):
    """Small content in two files."""

    path: str  # of both, without what tells them apart
    retired: bool  # what it was for is deleted, and the files with it

    def recheck(self) -> Recheck:
        """Read the copies again from the device, to compare them with what was written. Blocks, on
        the thread that writes them; raises OSError."""


@dataclass(slots=True)
class CopiesScrub:
    """Small files on their way through the scrub; `read` runs on the thread that writes them."""

    files: list[TwoCopies]
    at: int = 0
    took: int = 0  # bytes, by the last `read`; each file counts as some
    found: list[tuple[TwoCopies, Recheck]] = field(default_factory=list)  # by the last `read`

    @property
    def ended(self) -> bool:
        """Whether all of them were read."""
        return self.at >= len(self.files)

    def read(self) -> None:
        """Read some. Blocks; raises OSError."""
        self.took = 0
        self.found = []
        some = self.files[self.at : self.at + COPIES_AT_ONCE]
        self.at += len(some)
        for file in some:
            if not file.retired:
                found = file.recheck()
                self.took += sum(max(size, COPY_BYTES_MIN) for size in found.sizes)
                self.found.append((file, found))


@dataclass(slots=True)
class CommitLogScrub:
    """The file of the commit log that is written to on its way through the scrub, up to `end`;
    `read` may run on any thread."""

    file: File
    path: str
    salt: int
    end: int
    at: int = 0
    took: int = 0  # bytes, by the last `read`
    problem: str = ""
    _index: int = 0  # of the entry before
    _crc: int = 0  # ... its checksum

    @property
    def ended(self) -> bool:
        """Whether all of it was read."""
        return self.at >= self.end or self.problem != ""

    def read(self) -> None:
        """Read the next piece. Blocks; raises OSError."""
        self.took = 0
        try:
            if self.at < HEAD_SIZE:
                self._read_head()
            if not self.problem:
                self._read_entries()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.problem = f"the disk does not read it near byte {self.at}: {error.strerror}"
        except CorruptionError as error:
            self.problem = str(error)

    def _read_head(self) -> None:
        data = self._bytes(HEAD_SIZE)
        half = HEAD_SIZE // 2
        for copy in (data[:half], data[half:]):
            try:
                head = Head.decode(copy)
            except StorageError:  # of a later version
                head = None
            if head is None or head.salt != self.salt:
                self.problem = "its head is damaged"
            else:
                self._index = head.first - 1
        self.at = HEAD_SIZE

    def _read_entries(self) -> None:
        data = self._bytes(PIECE_BYTES)
        at = 0
        while at < len(data):
            entry = check_entry(data, at, self.salt)
            follows = entry is not None and entry.index == self._index + 1
            if entry is not None and follows and self._crc in (0, entry.previous):
                self._index, self._crc = entry.index, entry.crc
                at += entry.size
                continue
            size = size_of_entry(data, at)
            if entry is None and len(data) < at + size <= self.end - self.at:
                if at:
                    break  # the next piece begins with it
                data = self._bytes(size)
                continue
            self.problem = f"the entry at byte {self.at + at} is damaged"
            return
        self.at += at

    def _bytes(self, size: int) -> bytes:
        wanted = min(size, self.end - self.at)
        data = self.file.pread_stored(self.at, wanted)
        self.took += len(data)
        if len(data) < wanted:
            end = self.at + len(data)
            raise CorruptionError(f"it ends at byte {end}; its entries go to {self.end}")
        return data
