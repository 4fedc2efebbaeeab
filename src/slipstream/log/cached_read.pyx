"""Reading what is in the page cache; `cached_read.py` is the plain twin and says what that means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, errno

import os

# By the number of the system call: the C library has a function for it since glibc 2.26, and whether the
# running system knows it shows when it is asked.
cdef extern from *:
    """
    #include <errno.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifdef __linux__
    #include <sys/syscall.h>
    #endif

    #ifdef SYS_preadv2
    #define MAY_KNOW 1
    static Py_ssize_t read_if_cached(int fd, void *to, size_t size, long long offset) {
        const int nowait = 8;  /* RWF_NOWAIT, which older headers do not have */
        struct iovec part = {to, size};
        unsigned long low = (unsigned long) offset;
        unsigned long high = (unsigned long) ((unsigned long long) offset >> 32);
        return syscall(SYS_preadv2, fd, &part, 1L, low, high, nowait);
    }
    #else
    #define MAY_KNOW 0
    static Py_ssize_t read_if_cached(int fd, void *to, size_t size, long long offset) {
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    bint MAY_KNOW
    Py_ssize_t read_if_cached(int fd, void *to, size_t size, long long offset) noexcept nogil

KNOWS = bool(MAY_KNOW)


def read_cached(int fd, long long offset, Py_ssize_t size):
    cdef bytes data
    cdef char *to
    cdef Py_ssize_t count
    cdef int failed = 0
    if size < 0:
        raise ValueError("negative count")
    data = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(data)
    with nogil:  # what is not there is asked for before the call comes back
        count = read_if_cached(fd, to, size, offset)
        if count < 0:
            failed = errno
    if failed == EAGAIN:
        return None
    if failed:
        raise OSError(failed, os.strerror(failed))
    if count < size:
        return data[:count] if offset + count >= os.fstat(fd).st_size else None
    return data
