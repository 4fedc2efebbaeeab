import cython
cimport slipstream.wire.ascii as char

cdef bytes _PREFIX
cdef Py_ssize_t _PREFIX_SIZE
cdef unsigned long long _NUMBER_MAX
cdef Py_ssize_t _DIGITS_MAX


@cython.locals(view="const unsigned char *", prefix="const unsigned char *", n=Py_ssize_t, i=Py_ssize_t)
cpdef bint is_ack_subject(bytes subject) except -1


cdef class AckSubject:
    cdef readonly bint has_domain
    cdef readonly long long num_delivered
    cdef readonly long long stream_sequence
    cdef readonly long long consumer_sequence
    cdef readonly long long timestamp_ns
    cdef readonly long long num_pending

    @cython.locals(view="const unsigned char *", dots=int, fourth=Py_ssize_t, sixth=Py_ssize_t, i=Py_ssize_t)
    cpdef bint read(self, bytes subject) except -1
    @cython.locals(view="const unsigned char *", n=Py_ssize_t, i=Py_ssize_t, first=Py_ssize_t, field=int, value="unsigned long long")
    cpdef Py_ssize_t read_numbers(self, bytes subject, Py_ssize_t start, int count) except -2
