import cython

from slipstream.client.message cimport Message, message_of
from slipstream.client.outbox cimport Outbox
from slipstream.client.route cimport Route, Sink
from slipstream.wire.server_frames cimport ServerFrames


cdef class Subscription(Sink):
    cdef object _connection
    cdef object _kind
    cdef bint _drops_oldest
    cdef public Py_ssize_t max_messages_pending
    cdef public Py_ssize_t max_bytes_pending
    cdef readonly long long dropped
    cdef public Route route
    cdef object _messages
    cdef Py_ssize_t _bytes
    cdef bint _slow
    cdef bint _ended
    cdef object _error
    cdef list _waiting
    cdef list _emptied
    cdef object _task

    @cython.locals(size=Py_ssize_t)
    cpdef receive(self, ServerFrames frames, Outbox outbox)
    @cython.locals(message=Message)
    cpdef Message _take(self)
    cdef _wake(self)
    cdef _drop(self)
    @cython.locals(oldest=Message)
    cdef _make_room(self, Py_ssize_t size)
