import cython

from slipstream.client.reply_future cimport ReplyFuture
from slipstream.client.jetstream.message cimport JetStreamMessage, Metadata, delivered
from slipstream.client.message cimport Compiled, Message, message_of
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.client.subscriptions cimport Sink
from slipstream.model.ack_subject cimport is_ack_subject
from slipstream.wire.server_frames cimport ServerFrames


cdef class Batch(Sink):
    cdef public list messages
    cdef public Py_ssize_t wanted
    cdef public long long bytes
    cdef public bint heard
    cdef object _source
    cdef object _context
    cdef object _kind
    cdef ReplyFuture _waiter
    cdef bint _is_done

    @cython.locals(message=JetStreamMessage)
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    @cython.locals(waiter=ReplyFuture)
    cpdef finish(self)


cdef class Delivery(Sink):
    cdef public object loop
    cdef public object source
    cdef public long long requested
    cdef public long long requested_bytes
    cdef public long long held_bytes
    cdef public long long low
    cdef public long long low_bytes
    cdef public int missed
    cdef public bint ordered
    cdef public long long expected
    cdef public long long last_sequence
    cdef public long long arrived
    cdef public long long taken
    cdef public Py_ssize_t limit
    cdef public long long stop_after
    cdef public object pin
    cdef public bint is_ended
    cdef public object drainer
    cdef object _error
    cdef object _notices
    cdef object _context
    cdef object _kind
    cdef object _ready
    cdef object _waiter

    @cython.locals(message=JetStreamMessage, size=Py_ssize_t)
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    @cython.locals(metadata=Metadata)
    cdef bint _in_order(self, JetStreamMessage message) except -1
    @cython.locals(message=JetStreamMessage, size=Py_ssize_t)
    cpdef JetStreamMessage take(self)
    cpdef bint outcome(self) except -1
    cdef object _wake(self)


cdef class Iteration(Compiled):
    cdef Delivery _delivery
    cdef long long _rest_at
