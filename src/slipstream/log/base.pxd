from slipstream.log.record cimport Record
from slipstream.log.subject_index cimport SubjectIndex


cdef class Cursor:
    cpdef bint next(self, unsigned long long seq, Record record) except -1


cdef class Log:
    cdef public unsigned long long first_seq
    cdef public unsigned long long last_seq
    cdef public long long first_ts
    cdef public long long last_ts
    cdef public unsigned long long messages
    cdef public unsigned long long bytes
    cdef public unsigned long long durable_seq
    cdef public SubjectIndex subjects

    cpdef unsigned long long append(self, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end, long long ts) except 0
    cpdef unsigned long long skip(self, long long ts) except 0
    cpdef bint read(self, unsigned long long seq, Record record) except -1
    cpdef bint next(self, unsigned long long seq, Cursor cursor, Record record) except -1
    cpdef bint remove(self, unsigned long long seq, bint erase) except -1
    cpdef unsigned long long first_of(self, bytes subject) except? 0
    cpdef object prepare_sync(self)
    cpdef object finish_sync(self, object batch)
