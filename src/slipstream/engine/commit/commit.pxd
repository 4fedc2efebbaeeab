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


cdef class Carried:
    cdef object _commit
    cdef list _streams
    cdef list _batches

    cpdef void add(self, object stream, object batch) except *
