import cython
cimport slipstream.wire.ascii as char

from slipstream.log.record cimport Record
from slipstream.wire.buffer cimport OutBuffer

cdef Py_ssize_t NAME_BYTES_MAX
cdef Py_ssize_t HEADER_BYTES_MAX
cdef Py_ssize_t BODY_BYTES_MAX
cdef int _LOW_BITS, _MORE_FOLLOWS, _SHIFT_MAX

@cython.locals(i=Py_ssize_t, c="unsigned char")
cpdef bint may_be_subject(bytes subject) except -1
cpdef void put_number(OutBuffer out, unsigned long long value) except *
cpdef void put_entry(OutBuffer out, bytes name, long long ts, unsigned long long seq, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except *


cdef class EntryReader:
    cdef bytes _data
    cdef Py_ssize_t _at
    cdef list _parts
    cdef Py_ssize_t _waiting
    cdef Py_ssize_t _need
    cdef bytes _after
    cdef Py_ssize_t _after_at
    cdef Py_ssize_t _cursor
    cdef bint _is_begun
    cdef public bint ended

    @cython.locals(data=bytes)
    cpdef bint next(self, Record record) except -1
    @cython.locals(rest=bytes, first=bytes, missing=Py_ssize_t)
    cdef void _go_on(self) except *
    @cython.locals(name_size="long long", stamp="long long", seq="long long", header_size="long long", body_size="long long", at=Py_ssize_t)
    cdef bint _next(self, bytes data, Record record) except -1
    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, value="long long", shift=int, byte="long long")
    cdef long long _number(self, bytes data) except -2
