from slipstream.wire.buffer cimport OutBuffer


cdef class Record:
    cdef public unsigned long long seq
    cdef public long long ts
    cdef public bytes subject
    cdef public bytes data
    cdef public Py_ssize_t header_start
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t end
