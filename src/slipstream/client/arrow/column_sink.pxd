import cython

from slipstream.client.arrow.columns cimport MessageColumns
from slipstream.client.message cimport Message, message_of
from slipstream.client.subscriptions cimport Sink
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class ColumnSink(Sink):
    cdef public MessageColumns columns
    cdef public Py_ssize_t rows_wanted
    cdef public Py_ssize_t bytes_left
    cdef public bint is_direct
    cdef public int outcome
    cdef public Message status
    cdef public object error
    cdef public long long heartbeats
    cdef object _waiter

    @cython.locals(columns=MessageColumns, result=int)
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    cpdef _take_status(self, Message message)
    cpdef end(self, int outcome)
