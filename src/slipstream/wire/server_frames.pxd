import cython
cimport slipstream.wire.ascii as char
cimport slipstream.wire.operations as operations

from slipstream.wire.frames cimport Frames


cdef class ServerFrames(Frames):
    cdef public long long sid

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, c=int)
    cpdef int next(self) except -100
    @cython.locals(found=int, words=int, total=Py_ssize_t, header=Py_ssize_t, sid="long long")
    cdef int _message(self, bytes name, int needed) except -100
    @cython.locals(found=int)
    cdef int _line(self, bytes name, int op) except -100
    cdef int _unnamed(self) except -100
    @cython.locals(size=Py_ssize_t)
    cdef int _unfinished(self) except -100
