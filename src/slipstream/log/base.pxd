import cython

from slipstream.log.columns cimport Column
from slipstream.log.counts cimport Counts
from slipstream.log.durability cimport SyncBatch
from slipstream.log.record cimport Portion, Record
from slipstream.log.segment_bytes cimport EntryCopies
from slipstream.log.subject_index cimport SubjectFilter, SubjectIndex
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.subjects cimport has_wildcard

cdef unsigned int GONE


cdef class Block:
    cdef public unsigned long long base
    cdef public Column ids
    cdef public unsigned long long live
    cdef public unsigned long long bytes
    cdef public long long first_ts
    cdef public long long last_ts
    cdef public bint has_headers


cdef class Log:
    cdef public unsigned long long first_seq
    cdef public unsigned long long last_seq
    cdef public unsigned long long durable_seq
    cdef public unsigned long long messages
    cdef public unsigned long long bytes
    cdef public unsigned long long appended_size
    cdef public long long last_ts
    cdef public SubjectIndex subjects
    cdef public Counts durable_counts
    cdef public bint packs
    cdef public bint end_moved
    cdef public bint untold
    cdef public list blocks
    cdef long long _first_ts
    cdef unsigned long long _first_ts_seq
    cdef Block _found
    cdef Record _scratch

    cpdef unsigned long long size_of(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size)
    cpdef unsigned long long record_size(self, Record record)
    cpdef unsigned long long append(self, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end, long long ts) except 0
    cpdef unsigned long long skip(self, long long ts) except 0
    @cython.locals(block=Block)
    cpdef bint has_jobs(self) except -1
    cpdef bint read(self, unsigned long long seq, Record record) except -1
    cpdef bint read_near(self, unsigned long long seq, Record record) except -1
    cpdef bint next_near(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    cpdef Py_ssize_t copy_near(self, unsigned long long _seq, SubjectFilter _matching, Portion _portion, OutBuffer _out) except -1
    @cython.locals(block=Block, ids=Column)
    cpdef bint holds(self, unsigned long long seq) except -1
    @cython.locals(block=Block)
    cpdef bytes subject_of(self, unsigned long long seq)
    @cython.locals(block=Block, ids=Column, i=Py_ssize_t, at=Py_ssize_t, may_skip=bint, found="long long")
    cpdef bint next(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    cpdef Counts counts(self)
    cpdef void count_into(self, Counts counts) except *
    cpdef Py_ssize_t unwritten(self) except -1
    cpdef object prepare_sync(self, SyncBatch instead_of=*)
    cpdef bint carry(self, EntryCopies _copies) except -1
    cpdef void finish_carried(self, object error) except *
    cpdef void finish_sync(self, SyncBatch batch) except *
    cpdef bint owes_removals(self) except -1
    @cython.locals(block=Block, ids=Column, i=Py_ssize_t, id="unsigned int", size="unsigned long long")
    cdef bint _take_out(self, unsigned long long seq, bint erase) except -1
    cpdef bint remove(self, unsigned long long seq, bint erase) except -1
    @cython.locals(block=Block, ids=Column, i=Py_ssize_t, k=Py_ssize_t, is_front=bint)
    cpdef bint remove_run(self, unsigned long long first, unsigned long long count, unsigned long long size) except -1
    @cython.locals(i=Py_ssize_t)
    cdef _drop_front(self, Block block, Column ids, unsigned long long seq)
    @cython.locals(last=Block, ids=Column, i=Py_ssize_t)
    cdef _drop_all(self)
    cpdef unsigned long long first_of(self, bytes subject) except? 0
    cpdef unsigned long long last_on(self, bytes subject) except? 0
    cpdef unsigned long long last_of(self, bytes pattern, unsigned long long up_to=*) except? 0
    cdef unsigned long long _last_of_id(self, unsigned int id) except? 0
    @cython.locals(block=Block, at=Py_ssize_t, lo=Py_ssize_t, hi=Py_ssize_t, middle=Py_ssize_t, candidate=Block)
    cdef Py_ssize_t _index_of(self, unsigned long long seq) except -2
    @cython.locals(block=Block)
    cdef Block _block_of(self, unsigned long long seq)
    cpdef Column _ids(self, Block block)
    cpdef void _fill(self, Block block, Py_ssize_t i, Record record) except *
    @cython.locals(ids=Column)
    cpdef bint _find(self, Block block, Py_ssize_t i, Record record) except -1
    cpdef void note_first_ts(self, long long ts) except *
    cdef long long _ts_at(self, Block block, Py_ssize_t i) except? -1
    cpdef void _forgotten(self, Block block, Py_ssize_t i, bint erase) except *
    cpdef void _forgotten_run(self, Block block, Py_ssize_t i, Py_ssize_t count, bint is_front) except *
    @cython.locals(block=Block, i=Py_ssize_t, at=Py_ssize_t)
    cpdef void move_first(self, unsigned long long start) except *
    @cython.locals(block=Block, ids=Column, i=Py_ssize_t, at=Py_ssize_t)
    cdef unsigned long long _seek_first(self, unsigned int id, unsigned long long start) except? 0
    @cython.locals(block=Block, ids=Column, i=Py_ssize_t, at=Py_ssize_t)
    cdef unsigned long long _seek_last(self, unsigned int id, unsigned long long start) except? 0
