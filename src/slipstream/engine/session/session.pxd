import cython
cimport slipstream.wire.ascii as char
cimport slipstream.wire.operations as operations

from slipstream.engine.session.account cimport Account
from slipstream.engine.loop.clock cimport Clock
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Receiver, Route, Subscription
from slipstream.engine.loop.turn cimport Turn
from slipstream.model.ack_subject cimport is_ack_subject
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.client_frames cimport ClientFrames
from slipstream.wire.headers cimport find

cdef Py_ssize_t FLUSH_BYTES_MIN

cdef Py_ssize_t _SHARED_MIN
cdef Py_ssize_t _LADEN_MAX
cdef int _BYTES_SHIFT
cdef int _LINE
cdef int _FLUSH
cdef int _SERVICE
cdef int _CALL


cdef class ClientSession(Receiver):
    cdef public object engine
    cdef public object transport
    cdef public object connect
    cdef public object user
    cdef public object permissions
    cdef public bint filters
    cdef public Account account
    cdef public Clock clock
    cdef public Turn turn
    cdef public OutBuffer out
    cdef public long long cid
    cdef public dict subscriptions
    cdef public bint flushing
    cdef public bint closed
    cdef public bint slow
    cdef public bint behind
    cdef public bint ready
    cdef bint _greeted
    cdef public int stopped_by
    cdef long long _round
    cdef public bint verbose
    cdef public bint pedantic
    cdef public bint echo
    cdef public bint headers
    cdef public bint no_responders
    cdef public int protocol
    cdef public long long in_msgs
    cdef public long long in_bytes
    cdef public long long out_msgs
    cdef public long long out_bytes
    cdef public long long started
    cdef public long long last_activity
    cdef public long long ping_sent
    cdef public long long rtt
    cdef public int pings_out
    cdef public bint pinged
    cdef public str close_reason
    cdef public object timer
    cdef public list drain_callbacks
    cdef public dict facts
    cdef public object nonce
    cdef public object responses
    cdef ClientFrames _frames
    cdef Inbound _inbound
    cdef bytes _last_subject
    cdef Route _last_route
    cdef long long _last_generation

    @cython.locals(turn=Turn)
    cpdef void receive(self, bytes data) except *
    @cython.locals(turn=Turn)
    cpdef hold(self, int reason)
    @cython.locals(turn=Turn)
    cpdef release(self, int reason)
    cpdef park(self)
    @cython.locals(op=int, turn=Turn)
    cdef void _act(self) except *
    @cython.locals(frames=ClientFrames, message=Inbound, route=Route, subject=bytes, count=int, c=int)
    cdef void _publish(self) except *
    cdef void _line(self, int op) except *
    @cython.locals(out=OutBuffer, header_start=Py_ssize_t)
    cpdef bint deliver(self, Subscription subscription, bytes subject, Inbound message)
    @cython.locals(out=OutBuffer, header=Py_ssize_t, total=Py_ssize_t)
    cdef void _share(self, Subscription subscription, bytes subject, Inbound message, Py_ssize_t header_start) except *
    @cython.locals(turn=Turn)
    cdef void _count_out(self, Py_ssize_t size) except *
    cpdef void wake(self) except *


@cython.locals(second=int)
cdef bint _is_reserved_reply(bytes reply) except -1
@cython.locals(second=int)
cdef bint _is_reserved_subject(bytes subject) except -1
