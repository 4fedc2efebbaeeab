"""The scrub of a server that follows: its files are read again, slowly, to find what its disk has
changed since. Who leads has the engine's own (`engine.jetstream.scrub`).

Nobody has opened these files as streams, so it reads those that say of themselves where they end:
segments with a footer, which are all of a stream but the one that is written to. What is damaged
twice in a row is damage, the records among it with no entry being applied meanwhile. It is whole on
other servers.
"""

import asyncio
import os
import random
import re
from collections.abc import Awaitable, Callable, Iterator

from slipstream.engine.jetstream.scrub import FIRST_AFTER, PASS_EVERY
from slipstream.errors import CorruptionError
from slipstream.log.scrub import SegmentScrub
from slipstream.log.segment import Segment, read_footer, read_trailer
from slipstream.model.durations import SECOND
from slipstream.server.replica.store_copy import CopyingDisk
from slipstream.server.replica.store_directory import StoreDirectory

_NAME = re.compile(r"(\d{20})\.seg", re.ASCII)


class FollowerScrub:
    """See the module's text. `directory` gives the files while this server follows, and None while
    it does not; `rate` how many bytes a second are to be read, 0 for none; `found` is told each
    segment that is damaged, and how, and the pass ends with it."""

    def __init__(
        self,
        disk: CopyingDisk,
        directory: Callable[[], StoreDirectory | None],
        rate: Callable[[], int],
        found: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._rate = rate
        self._found = found

    async def run(self) -> None:
        """Pass after pass, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(FIRST_AFTER / SECOND)
            began = loop.time()
            if self._rate() and await self.run_pass():
                await asyncio.sleep(max(began + PASS_EVERY / SECOND - loop.time(), 0))

    async def run_pass(self) -> bool:
        """Read all segments that there are now, in an order that chance decides; whether it came to
        its end."""
        directory = self._directory()
        if directory is None:
            return False
        if directory.is_doubtful:  # and could not be replaced when that was found
            await self._found(directory.root, "it was found before")
            return False
        try:
            paths = await asyncio.to_thread(lambda: list(_segments(self._disk, directory.root)))
        except OSError:  # such as for a directory that goes just now; the next pass tries again
            return False
        random.shuffle(paths)
        for path in paths:
            fault = await self._fault(directory, path)
            if fault and (fault := await self._fault(directory, path)):
                await self._found(path, fault)
                return False
            if self._directory() is not directory:
                return False
        return True

    async def _fault(self, directory: StoreDirectory, path: str) -> str:
        """What is wrong with a segment; "" for nothing, or if that cannot be said just now."""
        try:
            reading = await asyncio.to_thread(open_segment, self._disk, directory, path)
            if reading is None:
                return ""
            try:
                while not reading.ended:
                    await asyncio.to_thread(reading.read)
                    if self._directory() is not directory or not self._rate():
                        return ""
                    await asyncio.sleep(reading.took / self._rate())
                return await asyncio.to_thread(_confirmed, directory, reading)
            finally:
                reading.file.close()
        except OSError:  # such as too many open files; the next pass tries again
            return ""


def open_segment(disk: CopyingDisk, directory: StoreDirectory, path: str) -> SegmentScrub | None:
    """A segment to be read, whose file is to be closed; None if it has gone, or has no footer. Its
    header is not believed yet. Blocks; raises OSError."""
    with directory.at_rest():  # one that goes just now would be made anew by opening it
        if not disk.exists(path):
            return None
        file = disk.open(path)
        file.hold()
    segment = Segment(_base(path), path)
    try:
        trailer = read_trailer(file)
        segment.salt, segment.format = trailer.salt, trailer.format
        segment.records_end = read_footer(file, segment).records_end
    except CorruptionError:
        file.close()
        return None
    segment.footed = True
    return SegmentScrub.of(disk, os.path.dirname(path), file, segment)


def _confirmed(directory: StoreDirectory, reading: SegmentScrub) -> str:
    """What is wrong with a segment that was read. Blocks; raises OSError."""
    with directory.at_rest():
        reading.confirm()
    return reading.text()


def _segments(disk: CopyingDisk, path: str) -> Iterator[str]:
    """The paths of all segments below a directory."""
    for name in disk.list(path):
        if _NAME.fullmatch(name):
            yield f"{path}/{name}"
        elif disk.is_directory(f"{path}/{name}"):
            yield from _segments(disk, f"{path}/{name}")


def _base(path: str) -> int:
    found = _NAME.fullmatch(path.rpartition("/")[2])
    assert found is not None, "a segment is called by its first sequence"
    return int(found[1])
