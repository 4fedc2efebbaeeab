import cython

from slipstream.engine.loop.clock cimport Clock


cdef class Timer:
    cdef public object at
    cdef public object callback

    cpdef void cancel(self)


cdef class Timers:
    cdef Clock _clock
    cdef list _heap
    cdef long long _count
    cdef long long _compact_at

    @cython.locals(timer=Timer)
    cpdef next_at(self)


cdef class Delay:
    cdef Timers _timers
    cdef long long _delay
    cdef object _due
    cdef Timer _timer

    @cython.locals(at="long long")
    cpdef void add(self, object callback) except *
    @cython.locals(now="long long")
    cpdef void _run(self) except *
