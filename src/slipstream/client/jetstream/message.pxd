import cython

from slipstream.client.message cimport Message
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class Metadata:
    cdef bytes _reply
    cdef Py_ssize_t _at
    cdef bint _is_v2
    cdef readonly long long num_delivered
    cdef readonly long long stream_sequence
    cdef readonly long long consumer_sequence
    cdef readonly long long timestamp_ns
    cdef readonly long long num_pending

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, dots=int, fourth=Py_ssize_t, sixth=Py_ssize_t)
    cdef Py_ssize_t _find_numbers(self, bytes reply) except -100
    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, value="long long")
    cdef long long _next_number(self) except -100
    cdef str _token(self, int index)


cdef class Sent:
    cdef WriteBuffer _write_buffer


cdef class JetStreamMessage(Message):
    cdef public object _context
    cdef public Metadata _metadata
    cdef public bint _acknowledged

    @cython.locals(write_buffer=WriteBuffer)
    cpdef Sent _finish(self, bytes word)
    cdef WriteBuffer _way_back(self)
    cdef object _twice(self)


@cython.locals(message=JetStreamMessage)
cpdef JetStreamMessage delivered(ServerFrames frames, WriteBuffer write_buffer, object context, object kind)
