cdef class LargeFrame:
    cdef bytes _data
    cdef Py_ssize_t _have


cdef class ReadBuffer:
    cdef object _buffer
    cdef object _small
    cdef LargeFrame _large

    cpdef object room(self)
    cpdef void expect(self, bytes start, Py_ssize_t size) except *
    cpdef bytes take(self, Py_ssize_t count)
