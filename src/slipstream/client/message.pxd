import cython
cimport slipstream.wire.ascii as char

from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.client.payload cimport header_bytes, payload_bytes, subject_bytes as as_subject
from slipstream.wire.headers cimport find
from slipstream.wire.server_frames cimport ServerFrames


cdef class Compiled:
    pass


cdef class Message(Compiled):
    cdef bytes _subject
    cdef bytes _reply
    cdef bytes _block
    cdef readonly bytes data
    cdef object _headers
    cdef WriteBuffer _write_buffer
    cdef public object _kind

    @cython.locals(data=bytes, header_start=Py_ssize_t, body_start=Py_ssize_t)
    cpdef fill(self, ServerFrames frames, WriteBuffer write_buffer)
    cdef object _value(self)
    cpdef WriteBuffer _answerable(self)


@cython.locals(message=Message)
cpdef Message message_of(ServerFrames frames, WriteBuffer write_buffer)
