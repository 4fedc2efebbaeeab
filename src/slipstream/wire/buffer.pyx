"""A growing byte buffer on raw memory; `buffer.py` is its plain twin and says what it means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef Py_ssize_t FIRST_CAPACITY = 1024
# Above this an emptied buffer gives its memory back: an idle connection holds next to nothing.
cdef Py_ssize_t KEPT_CAPACITY = 64 * 1024


cdef class OutBuffer:
    def __cinit__(self):
        self._data = NULL
        self._capacity = 0
        self.size = 0

    def __dealloc__(self):
        free(self._data)

    cdef int _grow(self, Py_ssize_t extra) except -1:
        """Make room for `extra` more bytes."""
        cdef Py_ssize_t wanted = self.size + extra
        cdef Py_ssize_t capacity
        cdef unsigned char *data
        if wanted <= self._capacity:
            return 0
        capacity = self._capacity * 2 if self._capacity else FIRST_CAPACITY
        if capacity < wanted:
            capacity = wanted
        data = <unsigned char *> realloc(self._data, capacity)
        if data == NULL:
            raise MemoryError()
        self._data = data
        self._capacity = capacity
        return 0

    cpdef int put(self, bytes data) except -1:
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        if self.size + n > self._capacity:
            self._grow(n)
        memcpy(self._data + self.size, PyBytes_AS_STRING(data), n)
        self.size += n
        return 0

    cpdef int put_slice(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Py_ssize_t n = end - start
        if start < 0 or n < 0 or end > PyBytes_GET_SIZE(data):
            raise IndexError("slice outside of the data")
        if self.size + n > self._capacity:
            self._grow(n)
        memcpy(self._data + self.size, PyBytes_AS_STRING(data) + start, n)
        self.size += n
        return 0

    cpdef int put_int(self, long long value) except -1:
        cdef unsigned char digits[24]
        cdef int at = 24
        cdef unsigned long long rest
        if value < 0:
            rest = <unsigned long long> (-(value + 1)) + 1
        else:
            rest = <unsigned long long> value
        while True:
            at -= 1
            digits[at] = <unsigned char> (48 + rest % 10)
            rest = rest // 10
            if rest == 0:
                break
        if value < 0:
            at -= 1
            digits[at] = 45
        if self.size + 24 > self._capacity:
            self._grow(24)
        memcpy(self._data + self.size, digits + at, 24 - at)
        self.size += 24 - at
        return 0

    cpdef bytes take(self):
        cdef bytes taken = PyBytes_FromStringAndSize(<char *> self._data, self.size)
        self.clear()
        return taken

    cpdef int clear(self) except -1:
        self.size = 0
        if self._capacity > KEPT_CAPACITY:
            free(self._data)
            self._data = NULL
            self._capacity = 0
        return 0
