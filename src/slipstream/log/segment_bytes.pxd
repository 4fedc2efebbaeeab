import cython

from slipstream.log.commit_entry cimport put_head
from slipstream.wire.buffer cimport OutBuffer

cdef int WRITE
cdef Py_ssize_t _HEAD_SIZE
cdef Py_ssize_t _SALT_BYTES
cdef Py_ssize_t _OFFSET_BYTES
cdef Py_ssize_t _SIZE_BYTES


cdef class SegmentCopy:
    cdef public Py_ssize_t head_size
    cdef public bytes before_size
    cdef public bytes behind_size
    cdef public unsigned long long round
    cdef public str path
    cdef public unsigned long long stream_created
    cdef public bint retired
    cdef public unsigned long long written
    cdef object _log
    cdef public object file
    cdef public unsigned int salt
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
    cdef public bint lacks_room
    cdef public list segments
    cdef readonly OutBuffer records
    cdef str _root
    cdef object _make_room

    @cython.locals(has_room=bint)
    cpdef bint has_room(self, SegmentCopy segment, Py_ssize_t size) except -1
    @cython.locals(before=Py_ssize_t, records=OutBuffer)
    cpdef void put(self, SegmentCopy segment, Py_ssize_t at, bytes data, OutBuffer out, Py_ssize_t start) except *


@cython.locals(segment=SegmentCopy, first=list)
cpdef list first_of_round(list segments, unsigned long long coming)
