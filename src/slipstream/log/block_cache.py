"""Pieces of segment files in memory, with a hard ceiling; one cache serves all logs of a server."""

from collections import OrderedDict

from slipstream.log.disk import File
from slipstream.log.record import FIXED_SIZE, length_at

WINDOW_BYTES = 128 * 1024


class BlockCache:
    """Least recently used windows of closed segments, at most `bytes_max` in all."""

    def __init__(self, bytes_max: int = 16 * 1024 * 1024) -> None:
        self._windows: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._capacity = max(bytes_max // WINDOW_BYTES, 1)

    def window(self, file: File, path: str, offset: int, keep: bool) -> tuple[int, bytes]:
        """Where the window around `offset` begins, and its bytes. Kept only if it cannot grow."""
        start = offset - offset % WINDOW_BYTES
        key = (path, start)
        found = self._windows.get(key)
        if found is not None:
            self._windows.move_to_end(key)
            return start, found
        found = file.pread(start, WINDOW_BYTES)
        if keep and len(found) == WINDOW_BYTES:
            self._windows[key] = found
            if len(self._windows) > self._capacity:
                self._windows.popitem(last=False)
        return start, found

    def read_record(self, file: File, offset: int) -> bytes:
        """Exactly the record at `offset`, as long as it says it is and the file can hold."""
        head = file.pread(offset, FIXED_SIZE)
        return file.pread(offset, min(length_at(head, 0), max(file.size() - offset, 0)))

    def forget(self, path: str) -> None:
        """Drop the windows of a file that changes or goes."""
        for key in [key for key in self._windows if key[0] == path]:
            del self._windows[key]
