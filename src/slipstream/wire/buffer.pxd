cdef class OutBuffer:
    cdef unsigned char *_data
    cdef Py_ssize_t _capacity
    cdef readonly Py_ssize_t size

    cdef int _grow(self, Py_ssize_t extra) except -1
    cpdef int put(self, bytes data) except -1
    cpdef int put_slice(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef int put_int(self, long long value) except -1
    cpdef bytes take(self)
    cpdef int clear(self) except -1
