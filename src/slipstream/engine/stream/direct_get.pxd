import cython

from slipstream.engine.session.message cimport Inbound
from slipstream.engine.session.routing cimport Service
from slipstream.engine.stream.direct_answer cimport Answer
from slipstream.engine.stream.stream cimport Stream
from slipstream.log.base cimport Log
from slipstream.log.record cimport Record


cdef class DirectGroup(Service):
    cdef object _account
    cdef readonly bytes subject
    cdef public list members

    @cython.locals(n=Py_ssize_t, chosen=Py_ssize_t, member=DirectGet)
    cpdef int handle(self, Inbound message) except -1


cdef class DirectGet:
    cdef readonly Stream stream
    cdef DirectGroup _group
    cdef bytes _subject
    cdef bytes _head

    @cython.locals(answer=Answer, by_subject=bytes, body=bytes)
    cpdef int handle(self, Inbound message) except -1
    cdef void _attempt(self, Answer answer, object request) except *
    cdef void _answer(self, Answer answer, object request) except *
    cdef void _respond(self, Answer answer, object request, bint found) except *


@cython.locals(seq="unsigned long long")
cpdef bint find_message(Log log, object request, Record record) except -1
