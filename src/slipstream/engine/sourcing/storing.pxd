import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.stream.stream cimport Stream
from slipstream.wire.headers cimport find


@cython.locals(seq="unsigned long long")
cpdef unsigned long long store(Stream stream, bytes subject, Inbound message, long long ts=*, bytes message_id=*) except? 0

cdef bytes _value(Inbound message, bytes name)
