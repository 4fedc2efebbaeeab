import cython

from slipstream.client.payload cimport header_bytes, payload_bytes, subject_bytes as as_subject
from slipstream.wire.buffer cimport OutBuffer


cdef class WriteBuffer:
    cdef public object loop
    cdef public Py_ssize_t bytes_max
    cdef public Py_ssize_t max_payload
    cdef public object codecs
    cdef public object transport
    cdef public bint headers_known
    cdef public long long position
    cdef public long long handed
    cdef public long long messages
    cdef public long long payload_bytes
    cdef public bint crowded
    cdef public bint batching
    cdef public bint is_closed
    cdef public list woken
    cdef OutBuffer _out
    cdef list _pieces
    cdef Py_ssize_t _pieces_size
    cdef bint _gathers
    cdef Py_ssize_t _chunk
    cdef bint _paused
    cdef bint _scheduled
    cdef list _waiting
    cdef str _subject
    cdef bytes _subject_bytes

    @cython.locals(body=bytes, block=bytes, back=bytes)
    cpdef long long publish(self, str subject, object data, str reply, object headers) except -1
    @cython.locals(out=OutBuffer, size=Py_ssize_t, before=Py_ssize_t)
    cpdef long long put_message(self, bytes subject, bytes reply, bytes block, bytes body) except -1
    @cython.locals(size=Py_ssize_t)
    cpdef long long put_view(self, bytes subject, bytes reply, bytes block, object body) except -1
    cdef void _check(self, bytes subject, bytes block, Py_ssize_t size) except *
    @cython.locals(out=OutBuffer, before=Py_ssize_t, size=Py_ssize_t)
    cdef void _put_large(self, bytes subject, bytes reply, bytes block, object body) except *
    cpdef long long put_line(self, bytes line) except -1
    cdef void _wake(self) except *
    @cython.locals(out=OutBuffer)
    cpdef void flush(self) except *
