from cpython.ref cimport PyObject

cdef const unsigned char *PAIRS  # the numbers below 100, for two digits at a time


cdef class OutBuffer:
    cdef PyObject *_held
    cdef unsigned char *_data
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _wanted
    cdef list _shares
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t shared

    # For writers of raw memory: make room for `extra` bytes behind `size`, write at
    # `_data + size`, then add to `size` what was written.
    cdef void _grow(self, Py_ssize_t extra) except *
    cdef void _cut(self) except *
    cpdef void put(self, bytes data) except *
    cpdef void put_slice(self, bytes data, Py_ssize_t start, Py_ssize_t end) except *
    cpdef void put_rest(self, OutBuffer other, Py_ssize_t start) except *
    cpdef void put_byte(self, unsigned char value) except *
    cpdef void put_int(self, long long value) except *
    cpdef void put_number(self, unsigned long long value, Py_ssize_t width) except *
    cpdef void put_message(self, bytes subject, bytes sid, bytes reply, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except *
    cpdef void put_message_line(self, bytes subject, bytes sid, bytes reply, Py_ssize_t header, Py_ssize_t total) except *
    cpdef void share(self, bytes data) except *
    cpdef void put_publish(self, bytes subject, bytes reply, bytes header, bytes body) except *
    cpdef void put_publish_start(self, bytes subject, bytes reply, bytes header, Py_ssize_t size) except *
    cdef unsigned char *_publish_start(self, bytes subject, bytes reply, bytes header, Py_ssize_t size, Py_ssize_t behind) except NULL
    cpdef Py_ssize_t length(self)
    cpdef bytes take(self)
    cpdef list take_parts(self)
    cdef void _empty(self) except *
    cpdef void clear(self) except *
