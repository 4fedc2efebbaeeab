import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.stream.counters cimport ack_end, add_up, check_increment
from slipstream.wire.headers cimport count_prefix, find


cdef class Verdict:
    cdef public bytes message_id
    cdef public object increment
    cdef public object total
    cdef public object schedule
    cdef public bytes cancels
    cdef public unsigned long long duplicate_of
    cdef public str rollup
    cdef public long long ttl
    cdef public bytes ack_end


@cython.locals(verdict=Verdict, increment=bytes, fields=Py_ssize_t)
cpdef Verdict check_headers(object stream, bytes subject, Inbound message, object staged=*)
cpdef object remove_request_info(Inbound message)
cdef bytes _value(Inbound message, bytes name)
cdef Verdict _within_bounds(Inbound message, Verdict verdict)
