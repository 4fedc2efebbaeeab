from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Service


cdef class Delivery(Service):
    cpdef bint is_ready(self) except -1
    cpdef bint holds_back(self) except -1
    cpdef bint send(self, Inbound message) except -1
    cpdef void nothing_left(self, bint is_full) except *
