cdef class Progress:
    cdef public int under_way
    cdef public bint again
    cdef public bint held
    cdef public long long since
    cdef public object lazy


cdef class BatchJob:
    cdef object _commit
    cdef public object stream
    cdef public object batch
    cdef public Py_ssize_t size
    cdef public long long since
