import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.sourcing.feed cimport Feed
from slipstream.engine.sourcing.storing cimport store
from slipstream.engine.stream.stream cimport Stream


cdef class Mirror(Feed):
    cdef object _direct
    cdef bint _answers_direct

    @cython.locals(stream=Stream, taken=Inbound, block=bytes, kept=bytes)
    cpdef int take(self, unsigned long long seq, long long ts, Inbound message) except -1
