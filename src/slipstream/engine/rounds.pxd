import cython

from slipstream.engine.commit.commit cimport Commit, Committed
from slipstream.engine.loop.turn cimport Turn
from slipstream.engine.session.output cimport Output


cdef class Rounds:
    cdef object _host
    cdef Turn _turn
    cdef Commit _commit
    cdef Output _output
    cdef public object requests
    cdef object _dropped
    cdef set _fetching
    cdef Py_ssize_t _reads
    cdef dict _held_back

    @cython.locals(turn=Turn, rounds=int)
    cpdef bint finish_turn(self, bint gathers=*) except -1
    @cython.locals(turn=Turn)
    cdef void _pump(self) except *
    @cython.locals(turn=Turn, stream=Committed, streams=list)
    cdef void _commit_streams(self) except *
