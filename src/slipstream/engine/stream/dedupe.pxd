import cython

from slipstream.log.base cimport Log
from slipstream.log.record cimport Record
from slipstream.wire.headers cimport find as find_header


cdef class DuplicateWindow:
    cdef public long long window
    cdef dict _seqs
    cdef object _order
    cdef object _arrivals

    cpdef long long find(self, bytes message_id) except -1
    @cython.locals(record=Record, seq="unsigned long long", after="unsigned long long", first="unsigned long long", message_id=bytes)
    cpdef bytes recall(self, Log log, long long now)
    @cython.locals(last=list)
    cpdef void add(self, bytes message_id, unsigned long long seq, long long now) except *
