"""Numbers on raw memory; `numbers.py` is the plain twin and says what they mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy


cdef class Numbers:
    def __cinit__(self, Py_ssize_t size):
        self.data = <long long *> calloc(max(size, 1), sizeof(long long))
        if self.data == NULL:
            raise MemoryError()
        self.size = size

    def __dealloc__(self):
        free(self.data)

    cpdef void take(self, bytes packed) except *:
        cdef Py_ssize_t count = PyBytes_GET_SIZE(packed) // sizeof(long long)
        if count > self.size:
            raise ValueError("more numbers than there is room for")
        memcpy(self.data, PyBytes_AS_STRING(packed), count * sizeof(long long))

    cpdef bytes pack(self):
        return PyBytes_FromStringAndSize(<char *> self.data, self.size * sizeof(long long))
