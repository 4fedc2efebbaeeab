cdef class BatchCopy:
    cdef public object segment
    cdef Py_ssize_t _offset
    cdef list _handed
    cdef unsigned long long _last_seq
    cdef unsigned int _checksum
