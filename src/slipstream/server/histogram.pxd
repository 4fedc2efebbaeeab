import cython


cdef class Histogram:
    cdef public list counts
    cdef public object total

    @cython.locals(at=Py_ssize_t, bound="long long")
    cpdef void add(self, long long duration, object count=*) except *
