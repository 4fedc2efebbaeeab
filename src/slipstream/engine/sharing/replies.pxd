import cython

from slipstream.engine.session.account cimport Account
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Follower


cdef class Open:
    cdef public Account account
    cdef public bytes reply
    cdef public Requests origin
    cdef public bint is_single
    cdef public long long deadline
    cdef public bytes id
    cdef object _watcher


cdef class Requests:
    cdef public Replies replies
    cdef public bint is_single
    cdef public long long response_threshold
    cdef public object open
    cdef public long long bytes
    cdef object _timer

    @cython.locals(entry=Open)
    cpdef bytes begin(self, Account account, bytes reply)
    cpdef touch(self, Open entry)


cdef class Replies(Follower):
    cdef public Account account
    cdef bytes _prefix
    cdef dict _open

    cpdef bytes begin(self, Open entry)
    cpdef end(self, Open entry)
    cpdef Open find(self, bytes subject)
    @cython.locals(goes_to=bytes, shown=bytes, entry=Open, answer=Inbound)
    cpdef int handle(self, Inbound message) except -1
