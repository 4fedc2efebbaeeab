import cython

from slipstream.wire.buffer cimport OutBuffer


cdef class BatchCopy:
    cdef public object segment
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t _offset
    cdef list _handed
    cdef unsigned long long _last_seq
    cdef unsigned int _checksum

    @cython.locals(data=bytes)
    cpdef void put(self, OutBuffer out) except *
