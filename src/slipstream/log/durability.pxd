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
    cdef public list _files
    cdef public list _directories
    cdef public list names
