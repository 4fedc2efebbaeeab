from slipstream.model.ack_subject cimport AckSubject


cdef struct Bytes:
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct Field:
    Py_ssize_t name
    Py_ssize_t name_end
    Py_ssize_t value
    Py_ssize_t value_end
    bint used


cdef class MessageColumns:
    cdef readonly int wanted
    cdef public long long last_wanted
    cdef public long long time_end
    cdef public long long expected
    cdef public long long after
    cdef public bint ordered
    cdef readonly long long sequence
    cdef readonly long long timestamp
    cdef readonly long long pending
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef Bytes[16] _columns
    cdef Field *_fields
    cdef Py_ssize_t _fields_room
    cdef Py_ssize_t _found
    cdef AckSubject _ack

    cpdef int add_direct(self, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -100
    cdef int _add_packed(self, const unsigned char *view, Py_ssize_t at, Py_ssize_t end) except -100
    cdef int _add_next(self, long long sequence, long long timestamp, const unsigned char *subject, Py_ssize_t subject_size, const unsigned char *view, Py_ssize_t body_start, Py_ssize_t end) except -100
    cpdef int add_delivered(self, bytes subject, bytes reply, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -100
    cdef int _add(self, long long sequence, long long timestamp, const unsigned char *subject, Py_ssize_t subject_size, bytes reply, const unsigned char *view, Py_ssize_t body_start, Py_ssize_t end) except -100
    cdef void _read_fields(self, const unsigned char *view, Py_ssize_t at, Py_ssize_t end) except *
    cdef void _add_headers(self, const unsigned char *view) except *
    cdef void _clear(self) except *
    cdef bytes _bytes_of(self, int column)
    cpdef dict take(self)
