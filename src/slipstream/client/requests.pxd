import cython

from slipstream.client.message cimport Message, message_of
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.client.subscriptions cimport Sink
from slipstream.wire.server_frames cimport ServerFrames


cdef class Request:
    cdef public str subject
    cdef public object future
    cdef public Sink sink
    cdef public long long token
    cdef public long long position
    cdef public double timeout
    cdef public double deadline


cdef class Requests(Sink):
    cdef public WriteBuffer write_buffer
    cdef public str prefix
    cdef public dict pending
    cdef object _subscriptions
    cdef bint _is_subscribed
    cdef Py_ssize_t _prefix_size
    cdef long long _token
    cdef object _timer
    cdef double _timer_at

    cpdef str open(self, Request request)
    cpdef close(self, Request request)
    @cython.locals(now=double, earliest=double, request=Request)
    cpdef _tick(self)
    @cython.locals(subject=bytes, view="const unsigned char *", token="long long", i=Py_ssize_t, request=Request, message=Message)
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
