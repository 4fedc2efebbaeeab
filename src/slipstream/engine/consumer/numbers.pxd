cdef class Numbers:
    cdef long long *data
    cdef readonly Py_ssize_t size

    cpdef void take(self, bytes packed) except *
    cpdef bytes pack(self)
