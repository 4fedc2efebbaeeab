import cython
cimport slipstream.wire.ascii as char

from slipstream.engine.commit.commit cimport Committed
from slipstream.engine.session.account cimport Account
from slipstream.engine.loop.clock cimport Clock
from slipstream.engine.stream.dedupe cimport DuplicateWindow
from slipstream.engine.stream.expectations cimport all_hold
from slipstream.engine.stream.counters cimport Totals
from slipstream.engine.stream.ingest_checks cimport Verdict, check_headers, remove_request_info
from slipstream.engine.stream.promises cimport Promises
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Service
from slipstream.engine.loop.turn cimport Turn
from slipstream.log.base cimport Log
from slipstream.log.durability cimport SyncBatch
from slipstream.log.segment_bytes cimport EntryCopies
from slipstream.log.record cimport Record
from slipstream.wire.headers cimport count_prefix, find
from slipstream.wire.patterns cimport PatternTrie

cdef int HOLD_WITH_ID, LOOK_CLOSER


cdef class Stream


cdef class CommittedStream(Committed):
    cdef readonly Stream stream


cdef class Stream(Service):
    # What each message, and each batch of a few, looks at stands together: of a thousand streams little
    # is in the processor's caches, and what is not comes by lines of 64 bytes.
    cdef public object watch
    cdef public object transform
    cdef public object republisher
    cdef public Log log
    cdef readonly CommittedStream committed
    cdef Promises _acks
    cdef public Clock clock
    cdef public Turn turn
    cdef public Account account
    cdef long long _max_size
    cdef long long _max_age
    cdef bint _plain
    cdef bint _sealed
    cdef bint _thorough
    cdef bint _limited
    cdef bint _interest
    cdef bint _no_ack
    cdef bint _counts
    cdef bint _filtered
    cdef public bint closed
    cdef public bint ack_at_once
    cdef bint _front_moved
    cdef public bytes last_msg_id
    cdef public str failed
    cdef list _changed
    cdef list _covered
    cdef list _fresh
    cdef list _joined
    cdef public list awaiting_next
    cdef long long _prepared
    cdef long long _finished
    cdef public unsigned long long visible_seq
    cdef public unsigned long long held_seq
    cdef public object letters
    cdef object _end_timer
    cdef bytes _ack_head

    cdef public object js
    cdef public object engine
    cdef public object outcome
    cdef public str name
    cdef bytes _name
    cdef public object config
    cdef public object store
    cdef public long long created
    cdef public dict consumers
    cdef public dict direct_consumers
    cdef public object inflow
    cdef public DuplicateWindow dedupe
    cdef public bint shows_front
    cdef public str doubt
    cdef public set doubtful
    cdef public PatternTrie filters
    cdef public dict unfiltered
    cdef public dict with_outstanding
    cdef public dict refiltered
    cdef public object direct
    cdef Record _record
    cdef object _age_timer
    cdef object _dedupe_timer
    cdef public Totals totals
    cdef public object ttls
    cdef public object batches
    cdef public object schedules
    cdef public object fast
    cdef public long long counted
    cdef long long _max_msgs
    cdef long long _max_bytes
    cdef long long _max_per_subject

    @cython.locals(subject=bytes, seq="unsigned long long", size=Py_ssize_t, message_id=bytes, known="long long", headers=Py_ssize_t, verdict=int)
    cpdef int handle(self, Inbound message) except -1
    cpdef unsigned long long store_message(self, bytes subject, Inbound message, bint rolls_up=*, long long ts=*) except? 0
    @cython.locals(seq="unsigned long long")
    cpdef unsigned long long keep(self, bytes subject, Inbound message, long long ts=*) except? 0
    @cython.locals(committed=CommittedStream)
    cpdef void mark_dirty(self) except *
    @cython.locals(change="long long")
    cpdef report_use(self)
    @cython.locals(seq="unsigned long long", id="long long")
    cpdef void enforce_limits(self, bytes subject) except *
    cpdef object prepare_sync(self, SyncBatch instead_of=*)
    cpdef bint carry(self, EntryCopies copies) except -1
    cpdef void synced(self, SyncBatch batch) except *
    cpdef void carried(self, object error) except *
    cdef void _tell(self, bint was_batch) except *
    cpdef run_jobs(self)
    @cython.locals(durable="unsigned long long", acks=Promises)
    cdef void _release_acks(self) except *
    cdef void _remember(self, bytes message_id, unsigned long long seq) except *
    cpdef watch_ids(self)
    cdef void _promise(self, bytes reply, unsigned long long seq, bytes end) except *
    @cython.locals(head=bytes)
    cdef void _ack(self, bytes reply, unsigned long long seq, bytes end) except *
    @cython.locals(seq="unsigned long long", last="unsigned long long", count="unsigned long long")
    cdef void _announce(self) except *
    cdef void _save_end_later(self) except *
    cpdef void acked(self, object consumer, unsigned long long seq) except *
    @cython.locals(verdict=Verdict)
    cdef int _handle_headers(self, bytes subject, Inbound message) except -1
    cpdef unsigned long long store_checked(self, bytes subject, Inbound message, Verdict verdict) except? 0
    cpdef object finish_message(self, unsigned long long seq, bytes subject, Verdict verdict)
    cdef object _note_id(self, unsigned long long seq, Verdict verdict)
    cdef object _obey(self, unsigned long long seq, bytes subject, Verdict verdict)
    cpdef bint remove_message(self, unsigned long long seq, bint erase) except -1
    cdef void _tell_removed(self, unsigned long long seq, bytes subject) except *
