import cython

from slipstream.engine.loop.clock cimport Clock
from slipstream.engine.loop.turn cimport Turn
from slipstream.engine.session.account cimport Account
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Follower, Service
from slipstream.engine.stream.stream cimport Stream
from slipstream.model.ack_subject cimport AckSubject, is_ack_subject


cdef class _Answers(Service):
    cdef object _feed

    cpdef int handle(self, Inbound message) except -1


cdef class Feed(Follower):
    cdef public Stream stream
    cdef public object source
    cdef public Account account
    cdef public Clock clock
    cdef public str index
    cdef public unsigned long long position
    cdef public bytes identity
    cdef public long long lag
    cdef public long long heard_at
    cdef public object error
    cdef public bint stopped
    cdef object _timers
    cdef object _timer
    cdef object _answers
    cdef bytes _reply
    cdef long long _asked_at
    cdef long long _fails
    cdef public int _level_at
    cdef Turn _turn
    cdef bytes _consumer
    cdef str _durable
    cdef bytes _subject
    cdef bytes _ack_head
    cdef AckSubject _ack
    cdef unsigned long long _delivered
    cdef unsigned long long _delivered_seq
    cdef list _transforms
    cdef object _patterns

    @cython.locals(reply=bytes, ack=AckSubject, end=Py_ssize_t, number="unsigned long long", seq="unsigned long long", ts="long long", pending="long long")
    cpdef int handle(self, Inbound message) except -1
    cpdef void take(self, unsigned long long seq, long long ts, Inbound message) except *
    cpdef bytes subject_of(self, bytes subject)
