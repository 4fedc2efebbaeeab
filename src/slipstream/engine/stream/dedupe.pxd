import cython

from slipstream.log.base cimport Log
from slipstream.log.record cimport Record
from slipstream.wire.headers cimport find as find_header


cdef class DuplicateWindow:
    cdef public long long window
    cdef dict _seqs
    cdef object _order
    cdef object _arrivals
    cdef long long _last_at
    cdef Py_ssize_t _last_count
    cdef unsigned long long _last_seq

    cpdef long long find(self, bytes message_id) except -1
    @cython.locals(record=Record, seq="unsigned long long", after="unsigned long long", first="unsigned long long", message_id=bytes)
    cpdef bytes recall(self, Log log, long long now)
    cdef void _end_arrival(self) except *
    cpdef void add(self, bytes message_id, unsigned long long seq, long long now) except *
