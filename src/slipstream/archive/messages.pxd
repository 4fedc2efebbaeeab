import cython

from slipstream.archive.entries cimport EntryReader, may_be_subject, put_entry
from slipstream.log.base cimport Log
from slipstream.log.columns cimport Column
from slipstream.log.record cimport Record, decode
from slipstream.wire.buffer cimport OutBuffer

cpdef bint store_messages(EntryReader entries, Record record, Log log) except -1


cdef class MessageWriter:
    cdef unsigned long long _base
    cdef bytes _data
    cdef unsigned int _salt
    cdef Column _ids
    cdef Column _offsets
    cdef object _parts
    cdef Record _record
    cdef Py_ssize_t _place
    cdef Py_ssize_t _stop
    cdef Py_ssize_t _at

    @cython.locals(ids=Column, offsets=Column, record=Record, i=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t)
    cpdef bint write(self, OutBuffer out, Py_ssize_t bytes_max) except -1
