cdef class Clock:
    cdef public long long now
