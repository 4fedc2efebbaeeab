"""An object that is read whole: its chunks in one piece of memory of the right size.

Each chunk is copied to its place as it comes, and what it came in is free for the next one. The
memory of a large object is new to the process, and to have the system bring it page by page of
4 KiB costs more than all else that is done with its bytes; so it is asked for in huge pages.

The compiled build replaces this module by `object_bytes.pyx`, where 64 MiB take 10 ms; `BytesIO`
takes 49. This is its plain twin and test oracle.
"""

from io import BytesIO


class ObjectBytes:
    """Memory for `size` bytes: put piece by piece, taken as one."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._bytes = BytesIO()

    def put(self, chunk: bytes | memoryview) -> memoryview:
        """Append a chunk; the same bytes where they can be read from now on.

        Raises ValueError if there is no room for it.
        """
        if self._bytes.tell() + len(chunk) > self._size:
            raise ValueError("more than there is room for")
        self._bytes.write(chunk)
        return memoryview(chunk)

    def take(self) -> bytes:
        """All of it. Raises ValueError if some is missing."""
        if self._bytes.tell() != self._size:
            raise ValueError("some of it is missing")
        return self._bytes.getvalue()
