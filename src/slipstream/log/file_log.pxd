import cython

from slipstream.log.base cimport Block, Log
from slipstream.log.columns cimport Column
from slipstream.log.record cimport Record, decode, encode
from slipstream.log.segment cimport Segment
from slipstream.wire.buffer cimport OutBuffer


cdef class FileLog(Log):
    cdef public str directory
    cdef public object disk
    cdef public object cache
    cdef public str failed
    cdef OutBuffer _out
    cdef Segment _active
    cdef unsigned long long _recorded_seq
    cdef unsigned long long _recorded_first
    cdef list _tombs
    cdef list _unsynced
    cdef list _doomed
    cdef list _jobs
    cdef bint _dir_dirty
    cdef bint _written
    cdef object _lost
    cdef Segment _window_of
    cdef Py_ssize_t _window_start
    cdef bytes _window
    cdef public bint replaying
    cdef list _loaded
    cdef Py_ssize_t _reserved

    cpdef unsigned long long size_of(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size)
    @cython.locals(segment=Segment, id="unsigned int", seq="unsigned long long", size="unsigned long long", length=Py_ssize_t, at=Py_ssize_t, out=OutBuffer, place="unsigned int")
    cpdef unsigned long long append(self, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end, long long ts) except 0
    @cython.locals(segment=Segment)
    cpdef unsigned long long skip(self, long long ts) except 0
    @cython.locals(segment=Segment)
    cpdef Column _ids(self, Block block)
    @cython.locals(segment=Segment, offset=Py_ssize_t)
    cpdef int _fill(self, Block block, Py_ssize_t i, Record record) except -1
    @cython.locals(data=bytes, start=Py_ssize_t, at=Py_ssize_t, n=Py_ssize_t)
    cdef int _look(self, Segment segment, Py_ssize_t offset) except -1
    @cython.locals(segment=Segment, seq="unsigned long long")
    cpdef int _forgotten(self, Block block, Py_ssize_t i, bint erase) except -1
