import cython

from slipstream.engine.consumer.consumer cimport Consumer
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Service


cdef class AckService(Service):
    cdef public Consumer consumer
    cdef Py_ssize_t _head_size

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, field=int, value="long long", seq="long long", consumer_seq="long long", size=Py_ssize_t)
    cpdef int handle(self, Inbound message) except -1
