import cython


cdef class Inbound:
    cdef public bytes subject
    cdef public bytes reply
    cdef public bytes to
    cdef public bytes data
    cdef public Py_ssize_t header_start
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t end
    cdef public object session

    @cython.locals(copy=Inbound)
    cpdef Inbound under(self, bytes subject, bytes reply)
    cpdef bytes header(self)
    cpdef bytes body(self)
