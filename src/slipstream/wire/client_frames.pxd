import cython
cimport slipstream.wire.ascii as char
cimport slipstream.wire.operations as operations

from slipstream.wire.frames cimport Frames


cdef class ClientFrames(Frames):
    cdef public Py_ssize_t max_control_line
    cdef public Py_ssize_t max_payload
    cdef public bint has_header

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, c=int, second=int)
    cpdef int next(self) except -100
    @cython.locals(view="const unsigned char *", i=Py_ssize_t, spelled=int)
    cdef int _operation(self, bytes name, bint needs_blank) except -100
    @cython.locals(found=int, words=int, needed=int)
    cdef int _publish(self, bytes name) except -100
    @cython.locals(found=int, total=Py_ssize_t, header=Py_ssize_t)
    cdef int _sized(self, int words, bint has_reply) except -100
    @cython.locals(found=int)
    cdef int _body(self, Py_ssize_t header, Py_ssize_t total) except -100
    @cython.locals(found=int)
    cdef int _line(self, bytes name, int op, bint needs_blank) except -100
    @cython.locals(found=int, at=Py_ssize_t, end=Py_ssize_t)
    cdef int _word_only(self, bytes name, int op) except -100
    @cython.locals(view="const unsigned char *", n=Py_ssize_t, size=Py_ssize_t)
    cdef int _unfinished(self, bytes name) except -100
