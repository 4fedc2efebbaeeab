import cython

from slipstream.engine.consumer.numbers cimport Numbers

cdef long long _GONE


cdef class PendingMessages:
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t due
    cdef Py_ssize_t _head
    cdef Py_ssize_t _tail
    cdef Py_ssize_t _end
    cdef Numbers _rows

    @cython.locals(n=Py_ssize_t, fresh=Numbers)
    cdef void _make_room(self) except *
    @cython.locals(i=Py_ssize_t)
    cpdef void add(self, long long seq, long long consumer_seq, long long ts, long long deadline) except *
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, guess="long long", found="long long")
    cpdef Py_ssize_t find(self, long long seq) except -2
    cpdef void remove(self, Py_ssize_t place) except *
    cpdef void clear(self) except *
    cpdef Py_ssize_t first(self) except -2
    @cython.locals(i=Py_ssize_t)
    cpdef Py_ssize_t following(self, Py_ssize_t place) except -2
    cpdef long long seq(self, Py_ssize_t place) except? -1
    cpdef long long consumer_seq(self, Py_ssize_t place) except? -1
    cpdef long long ts(self, Py_ssize_t place) except? -1
    cpdef long long deadline(self, Py_ssize_t place) except? -1
    cpdef void set_deadline(self, Py_ssize_t place, long long deadline) except *
    cpdef void delivered_again(self, Py_ssize_t place, long long ts, long long deadline) except *
    @cython.locals(i=Py_ssize_t, deadline="long long")
    cpdef list overdue(self, long long now)
    @cython.locals(i=Py_ssize_t, earliest="long long", deadline="long long")
    cpdef long long next_deadline(self) except? -1
    @cython.locals(i=Py_ssize_t, latest="long long")
    cpdef long long last_deadline(self) except? -1
    @cython.locals(i=Py_ssize_t)
    cpdef list sequences(self)
    @cython.locals(packed=Numbers)
    cpdef bytes pack(self)
    @cython.locals(i=Py_ssize_t, n=Py_ssize_t)
    cdef Py_ssize_t _copy(self, Numbers rows) except -1
    @cython.locals(i=Py_ssize_t, rows=Numbers)
    cpdef void unpack(self, bytes data) except *
