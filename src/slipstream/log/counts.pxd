cdef class Counts:
    cdef public unsigned long long messages
    cdef public unsigned long long bytes
    cdef public unsigned long long first_seq
    cdef public unsigned long long last_seq
    cdef public long long last_ts
    cdef public unsigned long long subjects
