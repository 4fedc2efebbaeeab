from slipstream.engine.session.message cimport Inbound


cdef class Receiver:
    cpdef bint deliver(self, Subscription subscription, bytes subject, Inbound message)
    cpdef bint can_forward(self, Inbound message)
    cpdef bint forward(self, Inbound message, list queues)


cdef class Subscription:
    cdef public Receiver receiver
    cdef public bytes subject
    cdef public bytes queue
    cdef public bytes sid
    cdef public long long delivered
    cdef public long long max_messages
    cdef public bint closed
    cdef public long long weight


cdef class Imported(Subscription):
    cdef public Subscription original
    cdef public object via


cdef class Service:
    cpdef int handle(self, Inbound message) except -1


cdef class Follower(Service):
    pass


cdef class SharedGroup:
    cdef public bytes queue
    cdef public list local
    cdef public list distant


cdef class Shared:
    cdef public list groups
    cdef public list plain


cdef class Route:
    cdef public tuple plain
    cdef public tuple queues
    cdef public tuple services
    cdef public Shared shared
