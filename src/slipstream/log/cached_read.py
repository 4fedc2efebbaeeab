"""Reading what is in the page cache, and nothing that the device would have to be asked for.

The compiled build replaces this module by `cached_read.pyx`, which reads right into the bytes that
it gives away; this is its plain twin.
"""

import os

KNOWS = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")
"""Whether the system may be able to say what is in the cache; one that is older, and some file
systems, are not."""


def read_cached(fd: int, offset: int, size: int) -> bytes | None:
    """Up to `size` bytes, fewer only at the end of the file; None unless all are in the cache.

    Raises OSError: EOPNOTSUPP, EINVAL or ENOSYS if the cache cannot be asked.
    """
    buffer = bytearray(size)
    try:
        count = os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    if count < size and offset + count < os.fstat(fd).st_size:
        return None
    return bytes(buffer[:count])
