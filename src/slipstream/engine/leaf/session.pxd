import cython
cimport slipstream.wire.ascii as char

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Route, Subscription
from slipstream.engine.session.session cimport ClientSession
from slipstream.model.ack_subject cimport is_ack_subject
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.leaf_frames cimport LeafFrames


cdef Py_ssize_t _SHARED_MIN
cdef Py_ssize_t _LADEN_MAX
cdef int _SERVICE
cdef int _CALL


cdef class LeafSession(ClientSession):
    cdef public object remote
    cdef public object watcher
    cdef public object system_account
    cdef public object packing
    cdef public bint is_spoke
    cdef public bint has_info
    cdef public str server
    cdef public str cluster
    cdef public str domain
    cdef public str remote_account
    cdef public long long peer_max_payload
    cdef public long long peer_payload_limit
    cdef public object rights
    cdef public object interest
    cdef LeafFrames _leaf_frames
    cdef bint _shows_own

    cdef void _line(self, int op) except *
    @cython.locals(frames=LeafFrames, message=Inbound, route=Route, subject=bytes, reply=bytes, size=Py_ssize_t, at=Py_ssize_t)
    cdef void _publish(self) except *
    cpdef bint deliver(self, Subscription subscription, bytes subject, Inbound message)
    cpdef bint can_forward(self, Inbound message)
    cpdef bint forward(self, Inbound message, list queues)
    @cython.locals(out=OutBuffer, subject=bytes, reply=bytes, header_start=Py_ssize_t, header=Py_ssize_t, total=Py_ssize_t)
    cdef bint _send(self, Inbound message, bytes queues) except -1
