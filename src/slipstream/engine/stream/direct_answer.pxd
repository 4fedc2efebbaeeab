import cython

from slipstream.engine.session.account cimport Account
from slipstream.engine.session.message cimport Inbound
from slipstream.engine.stream.stream cimport Stream
from slipstream.log.base cimport Log
from slipstream.log.record cimport Portion, Record, copy_message
from slipstream.log.subject_index cimport SubjectFilter
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.timestamps cimport put_timestamp

cdef Py_ssize_t PIECE_MESSAGES
cdef Py_ssize_t PIECE_BYTES
cdef Py_ssize_t BACKLOG_BYTES_MAX
cdef Py_ssize_t PACK_BYTES
cdef Py_ssize_t ALONE_PART
cdef bytes _SEQUENCE, _TIME_STAMP, _NUM_PENDING, _LAST_SEQUENCE, _PACK_HEAD


cdef class Answer:
    cdef public Stream stream
    cdef public object session
    cdef public Account account
    cdef public Log log
    cdef public bytes reply
    cdef public Record record
    cdef public bint plain
    cdef public unsigned long long end_seq
    cdef long long _left
    cdef long long _bytes_left
    cdef long long _pending
    cdef unsigned long long _last
    cdef SubjectFilter _matching
    cdef unsigned long long _next_seq
    cdef list _sequences
    cdef unsigned long long _up_to
    cdef Inbound _message
    cdef OutBuffer _scratch
    cdef long long _gathered
    cdef Portion _portion
    cdef bytes _stream_head

    @cython.locals(state=int)
    cpdef pump(self)
    @cython.locals(sent=Py_ssize_t, size=Py_ssize_t)
    cdef int _piece(self) except -2
    @cython.locals(before="unsigned long long", count="long long")
    cdef int _packed_piece(self) except -2
    @cython.locals(record=Record, portion=Portion)
    cdef long long _gather(self) except -2
    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t _gather_run(self, Portion portion) except -1
    cdef bint _has_enough(self, Portion portion) except -1
    @cython.locals(message=Inbound, head=bytes)
    cdef int _send_gathered(self, unsigned long long before) except -1
    @cython.locals(heard=int)
    cdef int _send_alone(self) except -1
    @cython.locals(record=Record, length=Py_ssize_t)
    cdef Py_ssize_t _note_sent(self) except -1
    cdef bint _advance(self) except -1
    @cython.locals(record=Record, message=Inbound, out=OutBuffer)
    cdef int _send(self, bint with_batch) except -1
