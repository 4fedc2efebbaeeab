from slipstream.log.counts cimport Counts


cdef class SyncBatch:
    cdef public unsigned long long last_seq
    cdef public object error
    cdef public unsigned long long end_base, proves_base
    cdef public Py_ssize_t end_at, proves_at
    cdef public unsigned long long first_seq
    cdef public Counts counts
    cdef public object segments
    cdef public object emptied
    cdef public object unlinked
    cdef public object jobs
    cdef public object references
    cdef object _disk
    cdef list _files
    cdef object _directories
    cdef public object names

    cpdef void take_over(self, SyncBatch earlier) except *
