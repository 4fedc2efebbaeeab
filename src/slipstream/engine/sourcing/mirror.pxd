import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.sourcing.feed cimport Feed
from slipstream.engine.sourcing.storing cimport store
from slipstream.engine.stream.stream cimport Stream
from slipstream.wire.headers cimport count_prefix


cdef class Mirror(Feed):
    cdef object _direct
    cdef bint _answers_direct

    @cython.locals(stream=Stream, taken=Inbound, block=bytes, kept=bytes, start=Py_ssize_t, end=Py_ssize_t)
    cpdef void take(self, unsigned long long seq, long long ts, Inbound message) except *
