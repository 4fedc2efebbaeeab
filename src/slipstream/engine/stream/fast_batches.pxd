from slipstream.engine.session.message cimport Inbound


cdef class FastBatch:
    cdef public bytes id
    cdef public long long flow
    cdef public bint goes_on
    cdef public long long number
    cdef public long long acknowledged
    cdef public long long messages
    cdef public unsigned long long last_seq
    cdef public long long touched
    cdef public object timer


cdef class FastBatches:
    cdef object _stream
    cdef dict _open
    cdef FastBatch _latest
    cdef bytes _prefix
    cdef bytes _next

    cpdef take(self, bytes subject, Inbound message)
    cdef bint _is_plain(self, Inbound message) except -1
    cdef _append(self, FastBatch batch, bytes subject, Inbound message, bytes reply)
