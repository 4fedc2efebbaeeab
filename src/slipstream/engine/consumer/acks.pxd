import cython
cimport slipstream.wire.ascii as char

from slipstream.engine.consumer.consumer cimport Consumer
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Service
from slipstream.model.ack_subject cimport AckSubject

cdef int SEQUENCES


cdef class AckService(Service):
    cdef public Consumer consumer
    cdef Py_ssize_t _head_size
    cdef AckSubject _ack

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, ack=AckSubject, end=Py_ssize_t, seq="long long", consumer_seq="long long", size=Py_ssize_t)
    cpdef int handle(self, Inbound message) except -1
