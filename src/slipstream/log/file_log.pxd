import cython

from slipstream.log.base cimport Block, Log
from slipstream.log.columns cimport Column
from slipstream.log.record cimport Record, encode
from slipstream.log.segment cimport Segment
from slipstream.log.segment_reader cimport SegmentReader
from slipstream.log.subject_index cimport SubjectFilter
from slipstream.wire.buffer cimport OutBuffer

cdef Py_ssize_t MESSAGE_ROOM
cdef Py_ssize_t CONTROLS_ROOM
cdef int _MESSAGE
cdef Py_ssize_t _PLACES_MAX
cdef Py_ssize_t _PACK_MIN


cdef class FileLog(Log):
    cdef public str directory
    cdef public object disk
    cdef public str failed
    cdef public bint replaying
    cdef public Py_ssize_t segment_bytes
    cdef public SegmentReader reader
    cdef public object compactor
    cdef OutBuffer _out
    cdef Segment _active
    cdef unsigned long long _recorded_seq
    cdef unsigned long long _recorded_first
    cdef list _removed_ranges
    cdef list _unsynced
    cdef list _emptied
    cdef list _jobs
    cdef list _footers
    cdef list _batches
    cdef public bint dir_dirty
    cdef public list unsynced_above
    cdef bint _written
    cdef list _handed
    cdef public unsigned long long stream_created
    cdef object _lost
    cdef Py_ssize_t _reserved
    cdef Py_ssize_t _group
    cdef int _group_flags
    cdef unsigned long long _group_after
    cdef Py_ssize_t _close_early
    cdef Py_ssize_t _committed
    cdef Py_ssize_t _tail
    cdef tuple _durable
    cdef tuple _claimed
    cdef tuple _proven
    cdef tuple _closed_at
    cdef unsigned long long _durable_first
    cdef public object copies
    cdef public object applying
    cdef public bint looks_ahead
    cdef object _spare
    cdef bint _spare_asked
    cdef bint _room_asked
    cdef list _names
    cdef dict _searched
    cdef bint _end_due
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
    @cython.locals(segment=Segment, offsets=Column)
    cpdef void _fill(self, Block block, Py_ssize_t i, Record record) except *
    cpdef bint _find(self, Block block, Py_ssize_t i, Record record) except -1
    cpdef bint read_near(self, unsigned long long seq, Record record) except -1
    cpdef bint next_near(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    cdef bint _search_on(self, unsigned long long seq, SubjectFilter matching, Record record) except -1
    @cython.locals(segment=Segment, seq="unsigned long long")
    cpdef void _forgotten(self, Block block, Py_ssize_t i, bint erase) except *
    @cython.locals(segment=Segment, k=Py_ssize_t)
    cpdef void _forgotten_run(self, Block block, Py_ssize_t i, Py_ssize_t count, bint is_front) except *
    @cython.locals(ranges=list)
    cdef _tell_later(self, unsigned long long first, unsigned long long count)
