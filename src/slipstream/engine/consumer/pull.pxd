import cython

from slipstream.engine.session.account cimport Account
from slipstream.engine.consumer.consumer cimport Consumer
from slipstream.engine.consumer.delivery cimport Delivery
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Route, Subscription


cdef class Waiting:
    cdef public bytes reply
    cdef public Route route
    cdef public long long generation
    cdef public long long left
    cdef public long long bytes_left
    cdef public bint counts_bytes
    cdef public long long expires_at
    cdef public bint no_wait
    cdef public long long beat_every
    cdef public long long next_beat
    cdef public long long delivered
    cdef public str group
    cdef public str pin
    cdef public long long min_pending
    cdef public long long min_ack_pending
    cdef public long long priority


cdef class PullDelivery(Delivery):
    cdef public Consumer consumer
    cdef public Account account
    cdef public object acks
    cdef public object waiting
    cdef bytes _subject
    cdef dict _bodies
    cdef dict _held
    cdef long long _wanted
    cdef long long _seen
    cdef Py_ssize_t _impatient
    cdef Py_ssize_t _unchecked
    cdef public object groups
    cdef bint _pins

    cpdef int handle(self, Inbound message) except -1
    cpdef bint is_ready(self) except -1
    cpdef bint holds_back(self) except -1
    @cython.locals(waiting=Waiting, route=Route, size=Py_ssize_t)
    cpdef bint send(self, Inbound message) except -1
    @cython.locals(subscription=Subscription)
    cdef void _mind_backlog(self, Route route, bytes reply) except *
    cpdef void nothing_left(self, bint is_full) except *
