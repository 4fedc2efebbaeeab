cdef class Turn:
    cdef public list sessions
    cdef public list streams
    cdef public bint has_relaxed
    cdef public list ready
    cdef public object parked
    cdef public object laden
    cdef public object waiting
    cdef public bint congested
    cdef public long long shared
    cdef public long long written
    cdef public long long round
    cdef public long long spent
    cdef public long long api_spent
    cdef public long long limit
    cdef bytes _tail_data
    cdef Py_ssize_t _tail_end
    cdef dict _tails

    cpdef bytes tail(self, bytes data, Py_ssize_t start, Py_ssize_t end)
    cpdef forget_tails(self)
