"""Writing in whole blocks; `direct_write.py` is its plain twin and says what it means."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from libc.stdio cimport rename
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, open
from posix.types cimport mode_t
from posix.unistd cimport close, pwrite, write

import os

cdef enum:
    BLOCK_BYTES = 4096

BLOCK = BLOCK_BYTES


cdef int write_file(const char *path, const char *data, Py_ssize_t size) noexcept nogil:
    """Have a file hold these bytes alone; 0 or an errno."""
    cdef int failed = 0
    cdef Py_ssize_t done = 0, n
    cdef int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, <mode_t> 0o600)
    if fd < 0:
        return errno
    while done < size and not failed:
        n = write(fd, data + done, size - done)
        if n >= 0:
            done += n
        elif errno != EINTR:
            failed = errno
    if close(fd) and not failed:
        failed = errno
    return failed


def replace(str path not None, str staged not None, bytes content not None):
    cdef bytes to = os.fsencode(path)
    cdef bytes through = os.fsencode(staged)
    cdef const char *target = to
    cdef const char *source = through
    cdef const char *data = PyBytes_AS_STRING(content)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
    cdef int failed
    if 0 in to or 0 in through:
        raise ValueError("embedded null byte")
    with nogil:
        failed = write_file(source, data, size)
        if not failed and rename(source, target):
            failed = errno
    if failed:
        raise OSError(failed, os.strerror(failed), path)


cdef struct Part:
    const char *data
    Py_ssize_t size


cdef struct Target:
    int fd
    char *buffer
    Py_ssize_t capacity
    Py_ssize_t used  # of the buffer
    long long offset  # where it goes


cdef int write_out(Target *to, Py_ssize_t size) noexcept nogil:
    """Write the first `size` bytes of the buffer; 0 or an errno."""
    cdef Py_ssize_t done = 0, n
    while done < size:
        n = pwrite(to.fd, to.buffer + done, size - done, to.offset + done)
        if n >= 0:
            done += n
        elif errno != EINTR:
            return errno
    to.offset += size
    return 0


cdef int put(Target *to, Part part) noexcept nogil:
    cdef int failed
    cdef Py_ssize_t n
    while part.size:
        n = min(part.size, to.capacity - to.used)
        memcpy(to.buffer + to.used, part.data, n)
        to.used += n
        part.data += n
        part.size -= n
        if to.used == to.capacity:
            failed = write_out(to, to.used)
            if failed:
                return failed
            to.used = 0
    return 0


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES


cdef int put_all(Target *to, Part *parts, Py_ssize_t count) noexcept nogil:
    cdef int failed
    cdef Py_ssize_t i, size
    for i in range(count):
        failed = put(to, parts[i])
        if failed:
            return failed
    size = padded(to.used)
    memset(to.buffer + to.used, 0, size - to.used)
    return write_out(to, size)


def write_blocks(int fd, buffer, list parts not None, bytes tail not None, long long offset):
    cdef Py_buffer view
    cdef Part *pointers
    cdef Target to
    cdef Py_ssize_t i, count = 1 + len(parts)
    cdef int failed
    cdef bytes part
    to.fd = fd
    to.offset = offset
    to.used = 0
    pointers = <Part *> malloc(count * sizeof(Part))
    if pointers == NULL:
        raise MemoryError()
    try:
        pointers[0] = Part(PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))
        for i in range(1, count):
            part = parts[i - 1]
            pointers[i] = Part(PyBytes_AS_STRING(part), len(part))
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            to.buffer = <char *> view.buf
            to.capacity = view.len
            with nogil:
                failed = put_all(&to, pointers, count)
            if failed:
                raise OSError(failed, os.strerror(failed))
            return to.buffer[to.used - to.used % BLOCK_BYTES : to.used]
        finally:
            PyBuffer_Release(&view)
    finally:
        free(pointers)


cdef extern from *:
    """
    #include <errno.h>
    #define AT_ONCE_MAX 64
    #define NOT_BEGUN (-1000000)

    #if defined(__linux__) && defined(__has_include)
    #if __has_include(<linux/aio_abi.h>)
    #include <linux/aio_abi.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #define HAS_CONTEXTS
    #endif
    #endif

    struct many {  /* writes of whole blocks; what each has given */
        int count;
        int fds[AT_ONCE_MAX];
        char *data[AT_ONCE_MAX];
        size_t sizes[AT_ONCE_MAX];
        long long offsets[AT_ONCE_MAX];
        long long given[AT_ONCE_MAX];
    };

    #ifdef HAS_CONTEXTS
    static int begin_all(unsigned long context, struct many *all) {
        struct iocb blocks[AT_ONCE_MAX], *list[AT_ONCE_MAX];
        int begun = 0;
        memset(blocks, 0, sizeof blocks);
        for (int i = 0; i < all->count; i++) {
            blocks[i].aio_data = i;
            blocks[i].aio_lio_opcode = IOCB_CMD_PWRITE;
            blocks[i].aio_fildes = all->fds[i];
            blocks[i].aio_buf = (unsigned long) all->data[i];
            blocks[i].aio_nbytes = all->sizes[i];
            blocks[i].aio_offset = all->offsets[i];
            list[i] = &blocks[i];
        }
        while (begun < all->count) {
            long n = syscall(SYS_io_submit, context, (long) (all->count - begun), list + begun);
            if (n > 0)
                begun += n;
            else if (n == 0 || errno != EINTR)
                break;  /* the rest was not begun: who asked writes it by itself */
        }
        return begun;
    }

    static void write_at_once(unsigned long *context, struct many *all) {
        struct io_event events[AT_ONCE_MAX];
        int left;
        for (int i = 0; i < all->count; i++)
            all->given[i] = NOT_BEGUN;
        if (*context == 0 && syscall(SYS_io_setup, AT_ONCE_MAX, context) < 0) {
            *context = 0;
            return;
        }
        left = begin_all(*context, all);
        while (left > 0) {  /* nothing but a signal can come in between */
            long n = syscall(SYS_io_getevents, *context, (long) left, (long) left, events, NULL);
            for (long i = 0; i < n; i++)
                all->given[events[i].data] = events[i].res;
            if (n > 0)
                left -= n;
        }
    }

    static void end_context(unsigned long context) {
        if (context)
            syscall(SYS_io_destroy, context);
    }
    #else
    static void write_at_once(unsigned long *context, struct many *all) {
        for (int i = 0; i < all->count; i++)
            all->given[i] = NOT_BEGUN;
    }
    static void end_context(unsigned long context) {}
    #endif
    """
    enum: AT_ONCE_MAX
    enum: NOT_BEGUN
    struct many:
        int count
        int *fds
        char **data
        size_t *sizes
        long long *offsets
        long long *given
    void write_at_once(unsigned long *context, many *all) nogil
    void end_context(unsigned long context) nogil


cdef struct Piece:
    int fd
    int failed
    long long offset
    Part part


cdef void write_alone(Piece *piece, Target *to) noexcept nogil:
    to.fd = piece.fd
    to.offset = piece.offset
    to.used = 0
    piece.failed = put_all(to, &piece.part, 1)


cdef Py_ssize_t write_some(Piece *pieces, Py_ssize_t count, Target *to, unsigned long *context) noexcept nogil:
    """Write the first of `pieces`, as many as may be written at once; how many that were."""
    cdef many all
    cdef Py_ssize_t i, size, used = 0
    all.count = 0
    while all.count < min(count, <Py_ssize_t> AT_ONCE_MAX):
        i = all.count
        size = padded(pieces[i].part.size)
        if size > to.capacity - used:
            break
        all.fds[i] = pieces[i].fd
        all.data[i] = to.buffer + used
        all.sizes[i] = size
        all.offsets[i] = pieces[i].offset
        memcpy(all.data[i], pieces[i].part.data, pieces[i].part.size)
        memset(all.data[i] + pieces[i].part.size, 0, size - pieces[i].part.size)
        used += size
        all.count += 1
    if all.count < 2 or context == NULL:
        write_alone(pieces, to)
        return 1
    write_at_once(context, &all)
    for i in range(all.count):
        if all.given[i] == <long long> all.sizes[i]:
            pieces[i].failed = 0
        elif all.given[i] < 0 and all.given[i] not in (NOT_BEGUN, -EINTR, -EAGAIN):
            pieces[i].failed = <int> -all.given[i]
        else:
            write_alone(&pieces[i], to)
    return all.count


cdef class ManyWrites:
    cdef unsigned long _context  # of the kernel, for writes that go on beside each other; 0 for none yet
    cdef bint _busy  # another thread uses it

    def __dealloc__(self):
        with nogil:  # it waits for some tens of milliseconds
            end_context(self._context)

    def write(self, buffer, list pieces not None):
        cdef Py_buffer view
        cdef Piece *all_pieces
        cdef Target to
        cdef Py_ssize_t i, count = len(pieces)
        cdef bytes data
        cdef tuple piece
        cdef unsigned long *context = NULL if self._busy else &self._context
        all_pieces = <Piece *> malloc(max(count, 1) * sizeof(Piece))
        if all_pieces == NULL:
            raise MemoryError()
        try:
            for i in range(count):
                piece = pieces[i]
                data = piece[1]
                all_pieces[i] = Piece(piece[0], 0, piece[2], Part(PyBytes_AS_STRING(data), len(data)))
            PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
            self._busy = True
            try:
                to.buffer = <char *> view.buf
                to.capacity = view.len
                with nogil:
                    i = 0
                    while i < count:
                        i += write_some(all_pieces + i, count - i, &to, context)
            finally:
                if context != NULL:
                    self._busy = False
                PyBuffer_Release(&view)
            return [all_pieces[i].failed for i in range(count)]
        finally:
            free(all_pieces)
