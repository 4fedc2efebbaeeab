import cython

from slipstream.wire.frames cimport Frames


cdef class ServerFrames(Frames):
    cdef public long long sid

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, c=int, op=int)
    cpdef int next(self) except -100

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, word=Py_ssize_t, c=int, tokens=int, total=Py_ssize_t, header=Py_ssize_t, wanted=int,
                   s0=Py_ssize_t, e0=Py_ssize_t, s1=Py_ssize_t, e1=Py_ssize_t, s2=Py_ssize_t, e2=Py_ssize_t, s3=Py_ssize_t, e3=Py_ssize_t, s4=Py_ssize_t, e4=Py_ssize_t)
    cdef int _message(self, Py_ssize_t start, bint with_header) except -100

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t)
    cdef int _line(self, int op, Py_ssize_t start) except -100


@cython.locals(value="long long", i=Py_ssize_t)
cdef long long _number(const unsigned char *view, Py_ssize_t start, Py_ssize_t end) except -100

@cython.locals(k=Py_ssize_t, name_view="const unsigned char *")
cdef int _spells(const unsigned char *view, Py_ssize_t i, Py_ssize_t n, bytes name) except -100
