"""Writing a batch in whole blocks; `direct_write.py` is its plain twin and says what it means."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport pwrite

import os

cdef enum:
    BLOCK_BYTES = 4096

BLOCK = BLOCK_BYTES


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


cdef int put_all(Target *to, Part *parts, Py_ssize_t count) noexcept nogil:
    cdef int failed
    cdef Py_ssize_t i, padded
    for i in range(count):
        failed = put(to, parts[i])
        if failed:
            return failed
    padded = (to.used + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
    memset(to.buffer + to.used, 0, padded - to.used)
    return write_out(to, padded)


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


cdef struct Piece:
    int fd
    int failed
    long long offset
    Part part


def write_many(buffer, list pieces not None):
    cdef Py_buffer view
    cdef Piece *all_pieces
    cdef Part part
    cdef Target to
    cdef Py_ssize_t i, count = len(pieces)
    cdef bytes data
    cdef tuple piece
    all_pieces = <Piece *> malloc(max(count, 1) * sizeof(Piece))
    if all_pieces == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            piece = pieces[i]
            data = piece[1]
            part = Part(PyBytes_AS_STRING(data), len(data))
            all_pieces[i] = Piece(piece[0], 0, piece[2], part)
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            to.buffer = <char *> view.buf
            to.capacity = view.len
            with nogil:
                for i in range(count):
                    to.fd = all_pieces[i].fd
                    to.offset = all_pieces[i].offset
                    to.used = 0
                    all_pieces[i].failed = put_all(&to, &all_pieces[i].part, 1)
        finally:
            PyBuffer_Release(&view)
        return [all_pieces[i].failed for i in range(count)]
    finally:
        free(all_pieces)
