import cython

from slipstream.engine.commit.commit cimport Committed
from slipstream.engine.loop.clock cimport Clock
from slipstream.engine.loop.timers cimport Timers
from slipstream.engine.loop.turn cimport Turn
from slipstream.engine.rounds cimport Rounds
from slipstream.engine.session.output cimport Output
from slipstream.server.histogram cimport Histogram

cdef long long ROUND_STEPS_MIN


cdef class Turns:
    cdef public object busy_poll
    cdef object _loop
    cdef object _engine
    cdef Rounds _rounds
    cdef Output _output
    cdef Turn _turn
    cdef Clock _clock
    cdef Timers _timers
    cdef object _log
    cdef Histogram _took
    cdef object _handle
    cdef object _handle_at
    cdef object _again
    cdef object _writer
    cdef bint _has_ended

    @cython.locals(now="long long")
    cpdef void enter(self) except *
    @cython.locals(looks=bint, more=bint)
    cpdef void leave(self, object connection=*, Py_ssize_t size=*) except *
    cpdef void run(self, object action) except *
    cdef bint _finish(self, bint gathers) except -1
    cdef bint _gathers(self, object connection) except -1
    @cython.locals(stream=Committed, unwritten=Py_ssize_t)
    cdef bint _looks_once_more(self, Py_ssize_t size) except -1
