import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.log.record cimport Record
from slipstream.wire.headers cimport find


cdef class Totals:
    cdef dict _known

    @cython.locals(known=tuple)
    cpdef object find(self, bytes subject, unsigned long long last)
    cpdef object note(self, bytes subject, unsigned long long seq, object total)


@cython.locals(digits=bytes)
cpdef object read_increment(bytes value)
cpdef object check_increment(object stream, Inbound message, bytes value, bint is_alone)
@cython.locals(text=bytes, header=bytes, data=bytes)
cpdef object add_up(object stream, bytes subject, Inbound message, object increment, object staged)
cpdef bytes ack_end(Inbound message)
