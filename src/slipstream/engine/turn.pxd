cdef class Turn:
    cdef public list sessions
    cdef public list streams
    cdef public list ready
    cdef public bint congested
