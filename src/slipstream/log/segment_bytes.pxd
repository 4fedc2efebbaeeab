cdef class SegmentCopy:
    cdef public str path
    cdef public unsigned long long stream_created
    cdef public bint retired
    cdef public unsigned long long written
    cdef object _log
    cdef object _file
    cdef public unsigned int salt
    cdef list _contents
    cdef Py_ssize_t _taken
    cdef bint _rewritten


cdef class BatchCopy:
    cdef public SegmentCopy segment
    cdef Py_ssize_t _offset
    cdef list _handed
    cdef unsigned long long _last_seq
    cdef unsigned int _checksum
