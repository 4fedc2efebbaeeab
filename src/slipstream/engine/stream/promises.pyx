"""Acknowledgements that wait, as numbers and pointers; `promises.py` is its plain twin and says what it
means."""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

cdef Py_ssize_t CAPACITY_MIN = 4
# What is empty and had more gives its memory back.
cdef Py_ssize_t KEPT_CAPACITY = 64


cdef class Promises:
    # Those from `_first` to before `_behind` wait; each owns a reference to its `reply` and `end`.

    def __cinit__(self):
        self._waiting = NULL
        self._capacity = self._first = self._behind = 0
        self.seq = 0
        self.reply = self.end = b""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._first, self._behind):
            Py_DECREF(<object> self._waiting[i].reply)
            Py_DECREF(<object> self._waiting[i].end)
        free(self._waiting)

    def __len__(self):
        return self._behind - self._first

    cpdef void add(self, unsigned long long cover, unsigned long long seq, bytes reply, bytes end) except *:
        cdef Promise *one
        if reply is None or end is None:
            raise TypeError("a promise has a reply subject and an end")
        if self._behind == self._capacity:
            self._make_room()
        one = &self._waiting[self._behind]
        one.cover = cover
        one.seq = seq
        Py_INCREF(reply)
        one.reply = <PyObject *> reply
        Py_INCREF(end)
        one.end = <PyObject *> end
        self._behind += 1

    cpdef bint take(self, unsigned long long durable) except -1:
        cdef Promise *one
        if self._first == self._behind or self._waiting[self._first].cover > durable:
            return False
        one = &self._waiting[self._first]
        self.seq = one.seq
        self.reply = <bytes> one.reply
        self.end = <bytes> one.end
        Py_DECREF(self.reply)
        Py_DECREF(self.end)
        self._first += 1
        if self._first == self._behind:
            self._first = self._behind = 0
            if self._capacity > KEPT_CAPACITY:
                free(self._waiting)
                self._waiting = NULL
                self._capacity = 0
        return True

    cdef void _make_room(self) except *:
        cdef Py_ssize_t count = self._behind - self._first
        cdef Py_ssize_t capacity
        cdef Promise *wider
        if self._first >= count and count:  # half of it is free, at the beginning
            memmove(self._waiting, self._waiting + self._first, count * sizeof(Promise))
        else:
            capacity = max(2 * count, CAPACITY_MIN)
            wider = <Promise *> malloc(capacity * sizeof(Promise))
            if wider == NULL:
                raise MemoryError()
            if count:
                memcpy(wider, self._waiting + self._first, count * sizeof(Promise))
            free(self._waiting)
            self._waiting = wider
            self._capacity = capacity
        self._first = 0
        self._behind = count
