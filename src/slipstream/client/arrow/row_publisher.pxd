import cython
cimport slipstream.wire.ascii as char

from slipstream.client.arrow.row_block cimport RowBlock
from slipstream.client.message cimport message_of
from slipstream.client.subscriptions cimport Sink
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class RowAcks(Sink):
    cdef public list blocks
    cdef public Py_ssize_t in_flight
    cdef public long long acknowledged
    cdef public list problems
    cdef public list unheard
    cdef public object error
    cdef Py_ssize_t _prefix_size
    cdef Py_ssize_t _wake_at
    cdef object _waiter

    @cython.locals(subject=bytes, view="const unsigned char *", token="long long", i=Py_ssize_t, row="long long", block=RowBlock, sequence="unsigned long long")
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    cdef int _odd(self, RowBlock block, Py_ssize_t row, ServerFrames frames, WriteBuffer write_buffer) except -1
    cdef object _wake(self)


@cython.locals(view="const unsigned char *", i=Py_ssize_t, value="unsigned long long")
cdef unsigned long long _sequence(bytes data, Py_ssize_t start, Py_ssize_t end) except? 0
