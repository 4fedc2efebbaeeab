import cython

from slipstream.client.message cimport Message
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.model.ack_subject cimport AckSubject
from slipstream.wire.server_frames cimport ServerFrames


cdef class Metadata(AckSubject):
    cdef bytes _reply

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
