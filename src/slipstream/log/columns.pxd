from slipstream.log.subject_index cimport SubjectFilter

cdef enum:
    GONE_ENTRY = 0xFFFFFFFFu  # what Python knows as `GONE`


cdef class Column:
    cdef unsigned int *_values
    cdef Py_ssize_t _capacity
    cdef readonly Py_ssize_t size

    cdef void _reserve(self, Py_ssize_t wanted) except *
    cpdef void append(self, unsigned int value) except *
    cpdef unsigned int get(self, Py_ssize_t i) except? 0xFFFFFFFE
    cpdef void set(self, Py_ssize_t i, unsigned int value) except *
    cpdef Py_ssize_t next_used(self, Py_ssize_t i) except -2
    cpdef Py_ssize_t next_of(self, Py_ssize_t i, SubjectFilter matching) except -2
    cpdef Py_ssize_t last_of(self, Py_ssize_t i, unsigned int value) except -2
    cpdef Py_ssize_t count_of(self, Py_ssize_t start, Py_ssize_t stop, SubjectFilter matching) except -2
    cpdef Py_ssize_t count_used(self, Py_ssize_t start, Py_ssize_t stop) except -2
    cpdef void truncate(self, Py_ssize_t size) except *
    cpdef bytes pack(self, int width)
    cpdef bytes stats(self, Py_ssize_t names)
    cpdef void bury(self, bytearray dead) except *
    cpdef bytes pack_steps(self, unsigned int start)
