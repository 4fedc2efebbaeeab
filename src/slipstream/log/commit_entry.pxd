from slipstream.wire.buffer cimport OutBuffer


cdef class Record:
    cdef readonly int kind
    cdef readonly unsigned long long stream_created
    cdef readonly str path
    cdef readonly bytes content
    cdef readonly Py_ssize_t size


cpdef void put_head(OutBuffer out, int kind, unsigned long long stream_created, bytes path, Py_ssize_t size) except *
