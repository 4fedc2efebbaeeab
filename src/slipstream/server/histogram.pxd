cdef class Histogram:
    cdef public list counts
    cdef public object total

    cpdef void add(self, long long duration, long long count=*) except *
