import cython

from slipstream.client.outbox cimport Outbox
from slipstream.client.route cimport Route, Sink
from slipstream.wire.server_frames cimport ServerFrames


cdef class Link:
    cdef public object peer
    cdef public Outbox outbox
    cdef public dict routes
    cdef public object transport
    cdef public bint lost
    cdef public bint active
    cdef public long long messages
    cdef public long long bytes_read
    cdef public long long payload_bytes
    cdef ServerFrames _frames

    @cython.locals(frames=ServerFrames, outbox=Outbox, routes=dict, route=Route, op=int)
    cpdef data_received(self, bytes data)
    @cython.locals(sink=Sink)
    cdef _deliver(self, Route route)
    @cython.locals(frames=ServerFrames)
    cdef int _control(self, int op) except -1
