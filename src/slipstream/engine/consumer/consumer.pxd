import cython

from slipstream.engine.session.account cimport Account
from slipstream.engine.loop.clock cimport Clock
from slipstream.engine.consumer.delivery cimport Delivery
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.consumer.pending cimport PendingMessages
from slipstream.engine.session.routing cimport Route, Subscription
from slipstream.engine.stream.stream cimport Stream
from slipstream.engine.loop.turn cimport Turn
from slipstream.log.base cimport Log
from slipstream.log.record cimport Record
from slipstream.log.subject_index cimport SubjectFilter
from slipstream.wire.buffer cimport OutBuffer

cdef int PUMP_MESSAGES
cdef Py_ssize_t PUMP_BYTES
cdef int DELIVERY_STEPS


cdef class Consumer:
    cdef public Stream stream
    cdef public Log log
    cdef public Account account
    cdef public Clock clock
    cdef public Turn turn
    cdef public object engine
    cdef public str name
    cdef public object config
    cdef public long long created
    cdef public tuple filters
    cdef public SubjectFilter matching
    cdef public Delivery delivery
    cdef public object store
    cdef public long long delivered_seq
    cdef public long long delivered_stream_seq
    cdef public long long delivered_at
    cdef public long long floor_seq
    cdef public long long floor_stream_seq
    cdef public long long acked_at
    cdef public unsigned long long next_seq
    cdef public long long num_pending
    cdef public unsigned long long counted_seq
    cdef public bint miscounted
    cdef public PendingMessages pending
    cdef public dict watched
    cdef public object watch_over
    cdef public dict redelivered
    cdef public object due
    cdef public list initial
    cdef public Py_ssize_t initial_at
    cdef public bint queued
    cdef public bint awaits_next
    cdef public bint stopped
    cdef public bint unsaved
    cdef public bint took_removals
    cdef public bint has_outstanding
    cdef public long long paused_until
    cdef public long long last_activity
    cdef public object timer
    cdef public long long timer_at
    cdef public object life
    cdef public object letters
    cdef public bytes origin
    cdef public bint acks
    cdef public bint ack_all
    cdef public bint retains
    cdef public bint headers_only
    cdef public long long max_ack_pending
    cdef public long long ack_wait
    cdef public long long max_deliver
    cdef public tuple backoff
    cdef public bytes ack_head
    cdef public long long sample
    cdef public long long replay_at
    cdef public long long replay_until
    cdef Record _record
    cdef OutBuffer _scratch
    cdef Inbound _message
    cdef bint _replays

    cpdef void wake(self) except *
    @cython.locals(n=Py_ssize_t, size=Py_ssize_t, is_full=bint)
    cpdef void pump(self) except *
    cdef void _expect(self) except *
    @cython.locals(record=Record, seq="unsigned long long", last="unsigned long long")
    cpdef int find_next(self) except -1
    @cython.locals(seq="long long", place=Py_ssize_t)
    cdef int _find_redelivery(self) except -1
    @cython.locals(record=Record, count="long long", left="long long", out=OutBuffer, message=Inbound, seq="long long")
    cpdef Py_ssize_t prepare(self) except -1
    @cython.locals(record=Record, seq="long long", now="long long", place=Py_ssize_t, count="long long", deadline="long long")
    cpdef void commit(self) except *
    @cython.locals(wait="long long")
    cpdef long long deadline(self, long long now, long long count) except? -1
    @cython.locals(place=Py_ssize_t)
    cpdef bint acked(self, long long seq, long long consumer_seq) except -1
    @cython.locals(place=Py_ssize_t, settled=list)
    cdef bint _acked_all(self, long long seq, long long consumer_seq) except -1
    @cython.locals(pending=PendingMessages, follows=bint)
    cpdef void settle(self, Py_ssize_t place) except *
    cpdef void stored(self, unsigned long long seq) except *
    cpdef void come(self) except *
    cpdef void removed(self, unsigned long long seq) except *
    @cython.locals(at=Py_ssize_t)
    cpdef bint comes_first(self, unsigned long long seq) except -1
    cpdef void catch_up(self) except *
    @cython.locals(first_seq="unsigned long long", first="unsigned long long", last="unsigned long long")
    cdef void _follow(self) except *
    @cython.locals(pending=PendingMessages, place=Py_ssize_t)
    cpdef bint front_moved(self) except -1
    cpdef bint needs(self, unsigned long long seq) except -1
    cpdef bint has_room(self) except -1
    cpdef void changed(self) except *
