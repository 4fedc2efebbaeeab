import cython

from slipstream.engine.loop.turn cimport Turn
from slipstream.engine.session.session cimport ClientSession
from slipstream.wire.buffer cimport OutBuffer

cdef Py_ssize_t PIECE_BYTES


cdef class Output:
    cdef public object may_answer
    cdef public bint is_crowded
    cdef object _host
    cdef Turn _turn
    cdef dict _silent
    cdef long long _written
    cdef long long _count_at

    cpdef bint is_kept(self)
    cpdef void try_again(self) except *
    @cython.locals(turn=Turn, session=ClientSession)
    cpdef void write_all(self) except *
    @cython.locals(turn=Turn, session=ClientSession)
    cpdef void write_laden(self) except *
    @cython.locals(out=OutBuffer, size=Py_ssize_t)
    cpdef void flush(self, ClientSession session) except *
    @cython.locals(pending="long long")
    cdef void _look_at_backlog(self, ClientSession session) except *
    cpdef count_pending(self)


cdef _pending(ClientSession session)
