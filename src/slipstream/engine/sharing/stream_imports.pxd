import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Follower, Imported, Receiver, Service, Subscription
from slipstream.wire.subject_pair cimport SubjectPair


cdef class _Renaming(Receiver):
    cdef SubjectPair _pair
    cdef object _link
    cdef public bint is_spoke
    cdef public str cluster

    @cython.locals(imported=Imported, original=Subscription, renamed=Inbound)
    cpdef bint deliver(self, Subscription subscription, bytes subject, Inbound message)
    cpdef bint can_forward(self, Inbound message)
    cpdef bint forward(self, Inbound message, list queues)


cdef class ImportedService(Service):
    cdef public Service original
    cdef public object via

    cpdef int handle(self, Inbound message) except -1


cdef class _ImportedFollower(Follower):
    cdef Service _original
    cdef SubjectPair _pair

    cpdef int handle(self, Inbound message) except -1


@cython.locals(goes_to=bytes, name=bytes, renamed=Inbound)
cdef Inbound _renamed(SubjectPair pair, Inbound message)
