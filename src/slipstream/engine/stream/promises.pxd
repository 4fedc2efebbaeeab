from cpython.ref cimport PyObject


cdef struct Promise:
    unsigned long long cover
    unsigned long long seq
    PyObject *reply
    PyObject *end


cdef class Promises:
    cdef Promise *_waiting
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _first
    cdef Py_ssize_t _behind
    cdef readonly unsigned long long seq
    cdef readonly bytes reply
    cdef readonly bytes end

    cpdef void add(self, unsigned long long cover, unsigned long long seq, bytes reply, bytes end) except *
    cpdef bint take(self, unsigned long long durable) except -1
    cdef void _make_room(self) except *
