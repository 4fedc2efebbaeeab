import cython
cimport slipstream.wire.ascii as char
cimport slipstream.wire.operations as operations

from slipstream.wire.client_frames cimport ClientFrames


cdef class LeafFrames(ClientFrames):
    cdef public list queues

    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, c=int)
    cpdef int next(self) except -100
    @cython.locals(found=int, words=int, needed=int)
    cdef int _message(self, bytes name) except -100
    cdef int _chosen(self, int needed) except -100
