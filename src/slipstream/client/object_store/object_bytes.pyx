"""An object in one piece of memory; `object_bytes.py` is its plain twin and says what it means."""

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_FillInfo,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

cdef extern from *:
    """
    #if defined(__linux__)
    #include <stdint.h>
    #include <sys/mman.h>
    /* Whole huge pages inside of the memory; if the system has none, nothing is lost. */
    static void ask_for_huge_pages(char *start, size_t size) {
        const uintptr_t page = 2 * 1024 * 1024;
        uintptr_t first = ((uintptr_t) start + page - 1) & ~(page - 1);
        uintptr_t last = ((uintptr_t) start + size) & ~(page - 1);
        if (first < last) madvise((void *) first, last - first, MADV_HUGEPAGE);
    }
    #else
    #define ask_for_huge_pages(start, size) ((void) (start), (void) (size))
    #endif
    """
    void ask_for_huge_pages(char *start, size_t size) noexcept

# From this size on memory is never a piece of the process's heap: the advice ends with the object.
cdef Py_ssize_t HUGE_BYTES_MIN = 32 * 1024 * 1024


cdef class Place:
    """Where one chunk lies; exports its bytes."""

    cdef bytes _data
    cdef Py_ssize_t _start
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, PyBytes_AS_STRING(self._data) + self._start, self._size, 1, flags)


cdef class ObjectBytes:
    cdef bytes _data
    cdef Py_ssize_t _have

    def __init__(self, Py_ssize_t size):
        self._data = PyBytes_FromStringAndSize(NULL, size)
        self._have = 0
        if size >= HUGE_BYTES_MIN:
            ask_for_huge_pages(PyBytes_AS_STRING(self._data), size)

    def put(self, chunk):
        cdef Py_buffer view
        cdef Place place = Place.__new__(Place)
        PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE)
        try:
            if view.len > PyBytes_GET_SIZE(self._data) - self._have:
                raise ValueError("more than there is room for")
            memcpy(PyBytes_AS_STRING(self._data) + self._have, view.buf, view.len)
            place._data = self._data
            place._start = self._have
            place._size = view.len
            self._have += view.len
        finally:
            PyBuffer_Release(&view)
        return memoryview(place)

    def take(self):
        if self._have != PyBytes_GET_SIZE(self._data):
            raise ValueError("some of it is missing")
        return self._data
