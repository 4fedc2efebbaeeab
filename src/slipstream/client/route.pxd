from slipstream.client.message cimport Message, message_of
from slipstream.client.outbox cimport Outbox
from slipstream.wire.server_frames cimport ServerFrames


cdef class Sink:
    cpdef receive(self, ServerFrames frames, Outbox outbox)
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
