cdef class SyncBatch:
    cdef public unsigned long long last_seq
    cdef public object error
    cdef public tuple end
    cdef public tuple proves
    cdef public unsigned long long first_seq
    cdef public list segments
    cdef public list emptied
    cdef public list jobs
    cdef public object copy
    cdef public bint carried
    cdef public list references
    cdef object _disk
    cdef list _files
    cdef list _directories
    cdef public list names

    cpdef void take_over(self, SyncBatch earlier) except *
