import cython
cimport slipstream.wire.ascii as char

from slipstream.wire.headers cimport begins_with
from slipstream.wire.patterns cimport PatternTrie
from slipstream.wire.subjects cimport has_wildcard

cdef bytes _ACK
cdef int ACK_TOKENS_V1, ACK_TOKENS_V2


cdef class PrefixCache:
    cdef public Py_ssize_t capacity
    cdef dict _exact
    cdef dict _by_last
    cdef dict _by_first
    cdef Py_ssize_t _tokens
    cdef Py_ssize_t _last
    cdef Py_ssize_t[6] _ends
    cdef bytes _recent
    cdef object _recent_value
    cdef bytes _recent_ack
    cdef object _recent_ack_value

    @cython.locals(view="const unsigned char *", key=bytes, is_ack=bint)
    cpdef object get(self, bytes subject)
    @cython.locals(view="const unsigned char *", key=bytes, end=Py_ssize_t)
    cdef object _of_ack(self, bytes subject)
    @cython.locals(fixed=Py_ssize_t, first=Py_ssize_t, kept=dict, key=bytes)
    cpdef void put(self, bytes subject, object value, PatternTrie trie) except *
    @cython.locals(tokens=Py_ssize_t)
    cpdef void forget(self, bytes pattern) except *
    cpdef void clear(self) except *
    cdef void _forget_recent(self) except *
    @cython.locals(view="const unsigned char *", n=Py_ssize_t, i=Py_ssize_t)
    cdef bint _is_as_recent(self, bytes subject) except -1
    cdef Py_ssize_t _first_tokens(self, bytes subject) except -1
    @cython.locals(view="const unsigned char *", n=Py_ssize_t, i=Py_ssize_t, tokens=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _look_at(self, bytes subject) except -1
