cdef class Landing:
    cdef bytes _data
    cdef Py_ssize_t _have


cdef class Intake:
    cdef object _buffer
    cdef object _small
    cdef Landing _large

    cpdef object room(self)
    cpdef void expect(self, bytes start, Py_ssize_t size) except *
    cpdef bytes take(self, Py_ssize_t count)
