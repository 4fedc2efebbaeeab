cdef class Change:
    cdef public unsigned long long number
    cdef public str path
    cdef public tuple key
    cdef public object kept
    cdef public object record
