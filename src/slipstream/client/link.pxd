import cython
cimport slipstream.wire.operations as operations

from slipstream.client.reply_future cimport ReplyFuture
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.client.subscriptions cimport Route, Sink
from slipstream.wire.read_buffer cimport ReadBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class Link:
    cdef public object peer
    cdef public WriteBuffer write_buffer
    cdef public dict routes
    cdef public object transport
    cdef public bint lost
    cdef public bint active
    cdef public long long messages
    cdef public long long bytes_read
    cdef public long long payload_bytes
    cdef ServerFrames _frames
    cdef ReadBuffer _read_buffer
    cdef list _woken

    cpdef get_buffer(self, Py_ssize_t size_hint)
    @cython.locals(data=bytes, start=bytes, missing=Py_ssize_t)
    cpdef buffer_updated(self, Py_ssize_t count)
    @cython.locals(frames=ServerFrames, write_buffer=WriteBuffer, routes=dict, route=Route, op=int)
    cdef _act(self, bytes data)
    @cython.locals(woken=list, answer=ReplyFuture)
    cdef _resume(self)
    @cython.locals(sink=Sink)
    cdef _deliver(self, Route route)
    @cython.locals(frames=ServerFrames)
    cdef void _control(self, int op) except *
