import cython


cdef class Frames:
    cdef public bytes data
    cdef public bytes subject
    cdef public bytes reply
    cdef public Py_ssize_t header_start
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t end
    cdef public Py_ssize_t args_start
    cdef public Py_ssize_t args_end
    cdef Py_ssize_t _at
    cdef list _chunks
    cdef Py_ssize_t _have
    cdef Py_ssize_t _need

    cpdef int feed(self, bytes data) except -1
    cpdef list args(self)
    cpdef bytes argument(self)
    @cython.locals(rest=bytes)
    cdef int _wait(self, Py_ssize_t need) except -1
    @cython.locals(size=Py_ssize_t, i=Py_ssize_t, known="const unsigned char *", view="const unsigned char *", previous=bytes)
    cdef int _take_subject(self, Py_ssize_t start, Py_ssize_t end) except -1
