import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Receiver, Route, Service, Shared, SharedGroup, Subscription
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.patterns cimport PatternTrie
from slipstream.wire.prefix_cache cimport PrefixCache
from slipstream.wire.subjects cimport has_wildcard


cdef class Account:
    cdef public str name
    cdef public object engine
    cdef public object random
    cdef public object jetstream
    cdef public object limits
    cdef public object mappings
    cdef public object imports
    cdef public object service_imports
    cdef public object replies
    cdef public dict sessions
    cdef public dict links
    cdef public bytes loop_subject
    cdef public long long generation
    cdef public long long inserts
    cdef public long long removes
    cdef public long long lookups
    cdef public long long misses
    cdef public PatternTrie trie
    cdef PrefixCache _routes
    cdef dict _watchers
    cdef PatternTrie _watched
    cdef OutBuffer _text
    cdef Inbound _own

    @cython.locals(found=Route)
    cpdef Route route(self, bytes subject)
    @cython.locals(found=Route, members=list)
    cdef Route _find(self, bytes subject)
    @cython.locals(route=Route)
    cpdef int publish(self, Inbound message) except -1
    cpdef int deliver(self, bytes destination, Inbound message) except -1
    @cython.locals(out=OutBuffer, message=Inbound)
    cpdef void acknowledge(self, bytes reply, bytes head, unsigned long long seq, bytes end) except *
    @cython.locals(subscription=Subscription, service=Service, count=int, receiver=Receiver, group=list)
    cpdef int dispatch(self, Route route, Inbound message) except -1
    @cython.locals(subscription=Subscription, n=Py_ssize_t, start=Py_ssize_t, i=Py_ssize_t)
    cdef int _one_of(self, list group, Inbound message) except -1
    @cython.locals(subscription=Subscription, service=Service, count=int, receiver=Receiver)
    cpdef int dispatch_chosen(self, Route route, Inbound message, object queues) except -1
    @cython.locals(subscription=Subscription, group=SharedGroup, count=int)
    cpdef int share_out(self, Shared shared, Inbound message, object queues) except -1


@cython.locals(subscription=Subscription, plain=list, services=list, queues=dict, distant=list)
cdef Route _sorted_out(list members)
