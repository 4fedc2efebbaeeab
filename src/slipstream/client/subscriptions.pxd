import cython

from slipstream.client.message cimport Message, message_of
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class Sink:
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    cpdef deliver(self, Message message)


cdef class ForeignSink(Sink):
    cdef object _target
    cpdef deliver(self, Message message)


cdef class Route:
    cdef public long long sid
    cdef public str subject
    cdef public str queue
    cdef public Sink sink
    cdef public long long delivered
    cdef public long long max_messages
    cdef public long long position
    cdef public long long base


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
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    @cython.locals(message=Message)
    cpdef Message _take(self)
    cdef _wake(self)
    cdef _drop(self)
    @cython.locals(oldest=Message)
    cdef _make_room(self, Py_ssize_t size)
