import cython

from slipstream.engine.consumer.consumer cimport Consumer
from slipstream.engine.consumer.delivery cimport Delivery
from slipstream.engine.session.account cimport Account
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Route, Service


cdef class PushDelivery(Delivery):
    cdef public Consumer consumer
    cdef public Account account
    cdef public object acks
    cdef public bytes subject
    cdef public bytes queue
    cdef public bint active
    cdef public long long free_at
    cdef bytes _flow_head
    cdef str _next_subject
    cdef object _refuser
    cdef bint _is_stored
    cdef bint _held_up
    cdef long long _window
    cdef long long _unanswered
    cdef long long _asked_at
    cdef bytes _asked
    cdef long long _next_beat
    cdef bint _flow_control
    cdef long long _beat_every
    cdef long long _rate
    cdef bint _flow_acks

    cpdef int handle(self, Inbound message) except -1
    cpdef bint is_ready(self) except -1
    cpdef bint is_stalled(self) except -1
    @cython.locals(consumer=Consumer, route=Route, shown=bytes, taken=int, size=Py_ssize_t)
    cpdef bint send(self, Inbound message) except -1
    cdef void _count(self, long long size) except *
    cdef bint _acks_by_flow(self) except -1
    cpdef void nothing_left(self, bint is_full) except *


cdef class _PullRefuser(Service):
    cdef object _consumer

    cpdef int handle(self, Inbound message) except -1
