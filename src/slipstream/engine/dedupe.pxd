cdef class DuplicateWindow:
    cdef public long long window
    cdef dict _seqs
    cdef object _arrivals

    cpdef long long find(self, bytes message_id) except -1
    cpdef int add(self, bytes message_id, unsigned long long seq, long long now) except -1
