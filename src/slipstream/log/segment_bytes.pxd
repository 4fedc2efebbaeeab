from slipstream.log.commit_entry cimport put_head
from slipstream.wire.buffer cimport OutBuffer

cdef int WRITE
cdef Py_ssize_t RECORD_SIZE
cdef Py_ssize_t _HEAD_SIZE


cdef class SegmentCopy:
    cdef public str path
    cdef public unsigned long long stream_created
    cdef public bint retired
    cdef public unsigned long long written
    cdef object _log
    cdef public object file
    cdef public unsigned int salt
    cdef public bytes name
    cdef public unsigned long long round
    cdef list _contents
    cdef Py_ssize_t _taken
    cdef bint _rewritten
    cdef Py_ssize_t _flushing
    cdef object _flushed
    cdef object _flush_error

    cpdef void took(self, tuple content) except *


cdef class EntryCopies:
    cdef readonly Py_ssize_t size
    cdef public Py_ssize_t room
    cdef public list segments
    cdef readonly OutBuffer records
    cdef str _root
    cdef object _make_room

    cpdef bint has_room(self, SegmentCopy segment, Py_ssize_t size) except -1
    cpdef void put(self, SegmentCopy segment, Py_ssize_t at, bytes data, OutBuffer out, Py_ssize_t start) except *
