"""Where reads land, on raw memory; `read_buffer.py` is its plain twin and says what it means."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

cdef Py_ssize_t READ_BYTES_C = 64 * 1024
READ_BYTES = READ_BYTES_C


cdef class LargeFrame:
    """A large frame on its way: bytes that nobody else has seen yet; exports what is missing."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        cdef char *rest = PyBytes_AS_STRING(self._data) + self._have
        PyBuffer_FillInfo(view, self, rest, PyBytes_GET_SIZE(self._data) - self._have, 0, flags)


cdef class ReadBuffer:
    def __cinit__(self):
        self._buffer = bytearray(READ_BYTES)
        self._small = memoryview(self._buffer)
        self._large = None

    cpdef object room(self):
        return self._small if self._large is None else memoryview(self._large)

    cpdef void expect(self, bytes start, Py_ssize_t size) except *:
        cdef LargeFrame large
        cdef Py_ssize_t have = len(start)
        if size <= have:
            raise ValueError("nothing is missing of this frame")
        large = LargeFrame.__new__(LargeFrame)
        large._data = PyBytes_FromStringAndSize(NULL, size)
        large._have = have
        memcpy(PyBytes_AS_STRING(large._data), PyBytes_AS_STRING(start), have)
        self._large = large

    cpdef bytes take(self, Py_ssize_t count):
        cdef LargeFrame large = self._large
        cdef Py_ssize_t room = READ_BYTES_C
        if large is not None:
            room = PyBytes_GET_SIZE(large._data) - large._have
        if count < 0 or count > room:
            raise IndexError("more than there was room for")
        if large is None:
            return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self._buffer), count)
        large._have += count
        if count < room:
            return b""
        self._large = None
        return large._data
