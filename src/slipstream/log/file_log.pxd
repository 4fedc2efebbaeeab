import cython

from slipstream.log.base cimport Block, Log
from slipstream.log.columns cimport Column
from slipstream.log.counts cimport Counts
from slipstream.log.durability cimport SyncBatch
from slipstream.log.record cimport Portion, Record, encode, encode_number, length_at
from slipstream.log.segment cimport Segment
from slipstream.log.segment_bytes cimport EntryCopies, SegmentCopy
from slipstream.log.segment_reader cimport SegmentReader
from slipstream.log.subject_index cimport SubjectFilter
from slipstream.wire.buffer cimport OutBuffer

cdef Py_ssize_t MESSAGE_ROOM
cdef Py_ssize_t CONTROLS_ROOM
cdef Py_ssize_t CONTROL_SIZE
cdef Py_ssize_t RANGE_SIZE
cdef Py_ssize_t COMMIT_SIZE
cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t COPIED_MAX
cdef Py_ssize_t SPARE_PART, ROOM_FROM, ROOM_PART
cdef int COMMIT, END, FRONT, SKIP, TOMBSTONE
cdef int MESSAGE
cdef Py_ssize_t PLACES_MAX
cdef Py_ssize_t PACK_MIN


cdef class FileLog(Log):
    # What each message, and each batch of a few, looks at stands together: see `Stream`.
    cdef Segment _active
    cdef OutBuffer _out
    cdef Py_ssize_t _reserved
    cdef Py_ssize_t _room
    cdef Py_ssize_t _group
    cdef unsigned long long _recorded_seq
    cdef unsigned long long _recorded_first
    cdef public Py_ssize_t segment_bytes
    cdef Py_ssize_t _close_early
    cdef public unsigned long long stream_created
    cdef public str failed
    cdef tuple _batches
    cdef Segment _carried
    cdef bint _written
    cdef bint _end_due
    cdef public bint dir_dirty
    cdef public bint looks_ahead
    cdef bint _spare_asked
    cdef bint _spare_due
    cdef bint _room_asked
    cdef public bint replaying
    cdef object _spare
    cdef tuple _jobs
    cdef public object copies
    cdef list _removed_ranges
    cdef tuple _unsynced
    cdef public tuple sparse
    cdef Py_ssize_t _committed
    cdef Py_ssize_t _tail
    cdef unsigned long long _durable_base, _claimed_base, _proven_base, _closed_base
    cdef Py_ssize_t _durable_at, _claimed_at, _proven_at, _closed_at
    cdef unsigned long long _durable_first
    cdef unsigned long long _carried_seq, _carried_first, _carried_base, _carried_proves_base
    cdef Py_ssize_t _carried_at, _carried_proves_at
    cdef Counts _carried_counts

    cdef public str directory
    cdef public object disk
    cdef public SegmentReader reader
    cdef public object compactor
    cdef tuple _emptied
    cdef list _going
    cdef list _unlinked
    cdef list _footers
    cdef public list unsynced_above
    cdef object _lost
    cdef int _group_flags
    cdef unsigned long long _group_after
    cdef list _names
    cdef dict _searched
    cdef bytes _saved

    cpdef unsigned long long size_of(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size)
    @cython.locals(segment=Segment, id="unsigned int", seq="unsigned long long", size="unsigned long long", length=Py_ssize_t, at=Py_ssize_t, out=OutBuffer, place="unsigned int", kind=int)
    cpdef unsigned long long append(self, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end, long long ts) except 0
    @cython.locals(after=int)
    cdef int _next_of_group(self) except -1
    @cython.locals(segment=Segment)
    cpdef unsigned long long skip(self, long long ts) except 0
    @cython.locals(segment=Segment)
    cpdef Column _ids(self, Block block)
    @cython.locals(size=Py_ssize_t)
    cdef bint _write_controls(self, Segment segment) except -1
    @cython.locals(out=OutBuffer, place=Py_ssize_t, size=Py_ssize_t)
    cdef void _put_ranges(self, Segment segment, bytes body) except *
    @cython.locals(place=Py_ssize_t, size=Py_ssize_t)
    cdef void _put_number(self, Segment segment, int kind, unsigned long long number, Py_ssize_t width) except *
    @cython.locals(durable=Py_ssize_t)
    cdef void _put_commit(self, Segment segment) except *
    @cython.locals(segment=Segment, data=bytes)
    cdef void _write_out(self) except *
    @cython.locals(kept_from=Py_ssize_t, old=Py_ssize_t)
    cdef void _let_chunks_go(self, Segment segment) except *
    cdef void _will_sync(self, Segment segment) except *
    @cython.locals(segment=Segment)
    cpdef Py_ssize_t unwritten(self) except -1
    @cython.locals(segment=Segment, places=Py_ssize_t)
    cdef bint _is_spare_wanted(self) except -1
    @cython.locals(segment=Segment, full=Py_ssize_t, end=Py_ssize_t, reserved=Py_ssize_t, more=Py_ssize_t)
    cdef void _look_ahead(self) except *
    @cython.locals(batch=SyncBatch, told=bint, last_seq="unsigned long long")
    cpdef object prepare_sync(self, SyncBatch instead_of=*)
    @cython.locals(segment=Segment)
    cdef void _refer(self, SyncBatch batch) except *
    @cython.locals(start=Py_ssize_t)
    cdef object _reference(self, Segment segment, unsigned long long last_seq)
    cdef void _note(self, SyncBatch batch) except *
    @cython.locals(segment=Segment, changed=bint, size=Py_ssize_t)
    cpdef bint carry(self, EntryCopies copies) except -1
    @cython.locals(segment=Segment, before=Counts)
    cpdef void finish_carried(self, object error) except *
    @cython.locals(at=Py_ssize_t, data=bytes, copy=SegmentCopy)
    cdef void _put_copy(self, Segment segment, EntryCopies copies) except *
    cpdef void hand_over(self) except *
    cdef bint _may_be_carried(self, Segment segment) except -1
    cdef bint _has_changed(self) except -1
    cpdef bint owes_removals(self) except -1
    @cython.locals(active=Segment, segment=Segment)
    cdef bint _tell_removed(self) except -1
    @cython.locals(oldest="unsigned long long", emptied=tuple)
    cdef list _take_emptied(self, bint told)
    @cython.locals(segment=Segment)
    cpdef void finish_sync(self, SyncBatch batch) except *
    @cython.locals(segment=Segment)
    cdef void _finish_files(self, SyncBatch batch) except *
    cpdef bint has_jobs(self) except -1
    cpdef void keep_end_later(self) except *
    cdef void _holds_durably(self, unsigned long long last_seq, unsigned long long first_seq, Counts counts) except *
    cdef void _is_durable_to(self, unsigned long long base, Py_ssize_t at) except *
    cdef void _is_proven_to(self, unsigned long long base, Py_ssize_t at) except *
    @cython.locals(segment=Segment, active=Segment, offsets=Column)
    cpdef void _fill(self, Block block, Py_ssize_t i, Record record) except *
    cpdef bint _find(self, Block block, Py_ssize_t i, Record record) except -1
    cpdef bint read_near(self, unsigned long long seq, Record record) except -1
    cpdef bint next_near(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    cpdef Py_ssize_t copy_near(self, unsigned long long seq, SubjectFilter matching, Portion portion, OutBuffer out) except -1
    cdef bint _search_on(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    @cython.locals(segment=Segment, seq="unsigned long long")
    cpdef void _forgotten(self, Block block, Py_ssize_t i, bint erase) except *
    @cython.locals(segment=Segment, k=Py_ssize_t)
    cpdef void _forgotten_run(self, Block block, Py_ssize_t i, Py_ssize_t count, bint is_front) except *
    cdef void _note_removed(self, unsigned long long first, unsigned long long count) except *
    @cython.locals(ranges=list)
    cdef _tell_later(self, unsigned long long first, unsigned long long count)


@cython.locals(start=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t)
cdef list _in_pieces(bytes data)
@cython.locals(low="unsigned int", high="unsigned int")
cdef unsigned int _number_at(bytes data, Py_ssize_t at) except? 0
cdef bint _is_before(unsigned long long base, Py_ssize_t at, unsigned long long other_base, Py_ssize_t other_at) noexcept
cdef list _files_of(list segments)
@cython.locals(places=Py_ssize_t)
cpdef unsigned long long end_of(Segment segment) except? 0
