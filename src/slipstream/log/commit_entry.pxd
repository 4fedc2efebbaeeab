cdef class Record:
    cdef readonly int kind
    cdef readonly unsigned long long stream_created
    cdef readonly str path
    cdef readonly bytes content
    cdef readonly Py_ssize_t size
