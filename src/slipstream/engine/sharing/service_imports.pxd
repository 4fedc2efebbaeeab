import cython

from slipstream.engine.session.account cimport Account
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Route, Service
from slipstream.engine.sharing.replies cimport Requests
from slipstream.wire.subject_pair cimport SubjectPair


cdef class ServiceImport(Service):
    cdef public Account account
    cdef public Account source
    cdef public SubjectPair pair
    cdef public object terms
    cdef int _nested
    cdef Requests _requests

    cpdef bytes subject_of(self, bytes subject)
    @cython.locals(source=Account, route=Route, clients=Route, subject=bytes, reply=bytes, request=Inbound, service=Service, count=int)
    cpdef int handle(self, Inbound message) except -1
    cdef Requests _open(self)
    @cython.locals(block=bytes)
    cdef _inform(self, Inbound request, object session)
