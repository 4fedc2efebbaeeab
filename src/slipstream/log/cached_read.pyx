"""Reading what is in the page cache; `cached_read.py` is the plain twin and says what that means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, errno

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>

    #ifdef RWF_NOWAIT
    #define KNOWS_WHAT_IS_CACHED 1
    static ssize_t read_if_cached(int fd, void *to, size_t size, off_t offset) {
        struct iovec part = {to, size};
        return preadv2(fd, &part, 1, offset, RWF_NOWAIT);
    }
    #else
    #define KNOWS_WHAT_IS_CACHED 0
    static ssize_t read_if_cached(int fd, void *to, size_t size, off_t offset) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    bint KNOWS_WHAT_IS_CACHED
    Py_ssize_t read_if_cached(int fd, void *to, size_t size, long long offset) noexcept

KNOWS = bool(KNOWS_WHAT_IS_CACHED)


def read_cached(int fd, long long offset, Py_ssize_t size):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef Py_ssize_t count = read_if_cached(fd, PyBytes_AS_STRING(data), size, offset)
    if count == size:
        return data
    if count < 0:
        if errno == EAGAIN:
            return None
        raise OSError(errno, os.strerror(errno))
    if offset + count < os.fstat(fd).st_size:
        return None
    return data[:count]
