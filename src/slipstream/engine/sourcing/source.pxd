import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.sourcing.feed cimport Feed
from slipstream.engine.sourcing.storing cimport store
from slipstream.engine.stream.stream cimport Stream
from slipstream.wire.headers cimport count_prefix, find


cdef class Source(Feed):
    cdef bytes _head
    cdef bytes _middle
    cdef public long long from_time
    cdef Inbound _taken
    cdef bint _counts

    @cython.locals(stream=Stream, taken=Inbound, subject=bytes, origin=bytes, block=bytes, head=bytes, message_id=bytes, start=Py_ssize_t, end=Py_ssize_t)
    cpdef void take(self, unsigned long long seq, long long ts, Inbound message) except *
    cdef bytes _tail(self)
