import cython

from slipstream.log.segment_bytes cimport EntryCopies


cdef class Committed:
    cdef public bint dirty
    cdef public int under_way
    cdef public bint again
    cdef public bint held
    cdef public long long since
    cdef public object lazy

    cpdef bint is_closed(self) except -1
    cpdef bint is_relaxed(self) except -1
    cpdef void mark_dirty(self) except *
    cpdef Py_ssize_t unwritten(self) except -1
    cpdef object prepare_sync(self, object instead_of=*)
    cpdef bint carry(self, EntryCopies copies) except -1
    cpdef void carried(self, object error) except *
    cpdef void synced(self, object batch) except *


cdef class Shared(Committed):
    cpdef EntryCopies copies(self)
    cpdef when_carried(self, object done)
    cpdef bint is_making_room(self) except -1


cdef class BatchJob:
    cdef Commit _commit
    cdef public Committed stream
    cdef public object batch
    cdef public Py_ssize_t size
    cdef public long long since


cdef class Carried:
    cdef Commit _commit
    cdef public list streams

    @cython.locals(stream=Committed)
    cpdef ended(self, object error)


cdef class Commit:
    cdef public Py_ssize_t queued_bytes_min
    cdef public Py_ssize_t own_syncs_max
    cdef public Shared shared
    cdef public Py_ssize_t own_batches
    cdef dict _waiting
    cdef object _runner
    cdef object _timers
    cdef long long _sync_interval

    @cython.locals(shared=Shared, stream=Committed, copies=EntryCopies, carried=Carried)
    cpdef commit_all(self, object streams)
    cdef bint _carry(self, Committed stream, EntryCopies copies) except -1
    cdef bint _may_wait(self) except -1
    @cython.locals(stream=Committed)
    cpdef void own_ended(self) except *
    cdef BatchJob _own(self, Committed stream, object batch, Py_ssize_t size, long long since)
    @cython.locals(size=Py_ssize_t, since="long long", job=BatchJob)
    cpdef void commit(self, Committed stream) except *
    cdef bint _may_queue(self, Committed stream, Py_ssize_t size) except -1
    cpdef void finished(self, Committed stream, object batch, object error=*) except *
    cdef void _commit_again(self, Committed stream) except *
    cdef void _sync_later(self, Committed stream, object batch, bint is_first) except *
