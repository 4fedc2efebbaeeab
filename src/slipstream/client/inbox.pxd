import cython

from slipstream.client.message cimport Message, message_of
from slipstream.client.outbox cimport Outbox
from slipstream.client.route cimport Sink
from slipstream.wire.server_frames cimport ServerFrames


cdef class Request:
    cdef public str subject
    cdef public object future
    cdef public Sink sink
    cdef public long long token
    cdef public long long position


cdef class Inbox(Sink):
    cdef public str prefix
    cdef public dict requests
    cdef Py_ssize_t _prefix_size
    cdef long long _token

    cpdef str open(self, Request request)
    cpdef close(self, Request request)
    @cython.locals(subject=bytes, view="const unsigned char *", token="long long", i=Py_ssize_t, request=Request, message=Message)
    cpdef receive(self, ServerFrames frames, Outbox outbox)
