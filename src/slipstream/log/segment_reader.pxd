import cython

from slipstream.log.columns cimport Column
from slipstream.log.record cimport Portion, Record, copy_run, decode
from slipstream.log.segment cimport Segment
from slipstream.log.subject_index cimport SubjectFilter
from slipstream.wire.buffer cimport OutBuffer


cdef int MESSAGE

cdef bint _is(Record record, Segment segment, Py_ssize_t i) except -1


cdef class SegmentReader:
    cdef object _disk
    cdef object _cache
    cdef object _subjects
    cdef list _loaded
    cdef Segment _window_of
    cdef Py_ssize_t _window_start
    cdef bytes _window
    cdef public int held
    cdef list _kept
    cdef public bint near
    cdef public dict fetched
    cdef public int awaited

    cpdef void fill(self, Segment segment, Py_ssize_t i, Record record) except *
    @cython.locals(offsets=Column, offset=Py_ssize_t)
    cpdef void fill_as_stored(self, Segment segment, Py_ssize_t i, Record record) except *
    cpdef Py_ssize_t copy_run(self, Segment segment, Py_ssize_t i, SubjectFilter matching, Portion portion, OutBuffer out) except -1
    @cython.locals(step=Py_ssize_t, at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, data=bytes, seq="unsigned long long")
    cpdef bint find(self, Segment segment, Py_ssize_t i, Record record) except -1
    @cython.locals(at=Py_ssize_t, n=Py_ssize_t, middle=Py_ssize_t)
    cdef void _look(self, Segment segment, Py_ssize_t offset) except *
    cdef bint _look_in_chunks(self, Segment segment, Py_ssize_t offset) except -1
    cpdef void load(self, Segment segment) except *
