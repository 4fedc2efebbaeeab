import cython

from slipstream.client.message cimport Message, message_of
from slipstream.client.payload cimport subject_bytes
from slipstream.client.subscriptions cimport Sink
from slipstream.client.write_buffer cimport WriteBuffer
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.server_frames cimport ServerFrames


cdef class Publication:
    cdef public object future
    cdef public long long token
    cdef public bytes subject
    cdef public bytes block
    cdef public object body
    cdef public int retries
    cdef public double deadline
    cdef public long long position

    cdef object fill(self, object future, long long token, bytes subject, bytes block, object body, int retries, double deadline)


cdef class AckInbox(Sink):
    cdef public WriteBuffer write_buffer
    cdef public object loop
    cdef public bytes prefix
    cdef public Py_ssize_t in_flight_max
    cdef public double retry_wait
    cdef public bint is_open
    cdef public object on_ack
    cdef public object on_error
    cdef public dict pending
    cdef long long _token
    cdef OutBuffer _scratch
    cdef str _subject
    cdef bytes _subject_bytes
    cdef Py_ssize_t _prefix_size
    cdef object _decode
    cdef public object create_future
    cdef object _time
    cdef object _slots
    cdef list _empty
    cdef object _retired
    cdef object _timer
    cdef double _timer_at

    @cython.locals(body=bytes, block=bytes)
    cpdef send(self, str subject, object data, object headers, object kind, object options, double timeout, int retries, object future)
    @cython.locals(token="long long", deadline=double, publication=Publication, write_buffer=WriteBuffer, reply=bytes)
    cpdef publish(self, bytes subject, bytes block, object body, double timeout, int retries, object future)
    @cython.locals(scratch=OutBuffer)
    cdef bytes _reply(self, long long token)
    cdef long long _put(self, bytes subject, bytes reply, bytes block, object body) except -1
    @cython.locals(subject=bytes, view="const unsigned char *", token="long long", i=Py_ssize_t, publication=Publication, message=Message, body=bytes)
    cpdef receive(self, ServerFrames frames, WriteBuffer write_buffer)
    cdef object _explain(self, Publication publication, bytes body, object error)
    cdef object _no_responders(self, Publication publication)
    cdef object _unheard(self, Publication publication)
    cdef object _fail(self, Publication publication, object error)
    cdef object _release(self, Publication publication)
    cdef object _free_slot(self)
    cdef object _nothing_in_flight(self)
    @cython.locals(now=double, earliest=double, publication=Publication)
    cpdef _tick(self)
    cpdef _again(self, Publication publication)
    cdef object _overdue(self, Publication publication)
    cdef object _interrupted(self, Publication publication, bint sent)
