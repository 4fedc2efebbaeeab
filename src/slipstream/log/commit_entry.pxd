import cython

from slipstream.wire.buffer cimport OutBuffer

cdef Py_ssize_t _RECORD_SIZE


cdef class Record:
    cdef readonly int kind
    cdef readonly unsigned long long stream_created
    cdef readonly str path
    cdef readonly bytes content
    cdef readonly Py_ssize_t size


cpdef void put_head(OutBuffer out, int kind, unsigned long long stream_created, bytes path, Py_ssize_t size) except *
@cython.locals(content_at=Py_ssize_t, end=Py_ssize_t, path_size=Py_ssize_t,
               size=Py_ssize_t, kind=cython.int, least=cython.int, most=cython.int)
cdef list _decode_records(bytes data, Py_ssize_t at, Py_ssize_t after, dict paths)
