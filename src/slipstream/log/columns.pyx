"""Columns of 32-bit numbers on raw memory; `columns.py` is the plain twin and says what they mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, realloc

from slipstream.log.subject_index cimport SubjectFilter

GONE = 0xFFFFFFFF


cdef class Column:
    def __cinit__(self):
        self._values = NULL
        self._capacity = 0
        self.size = 0

    def __dealloc__(self):
        free(self._values)

    def __len__(self):
        return self.size

    cdef void _reserve(self, Py_ssize_t wanted) except *:
        cdef unsigned int *values
        cdef Py_ssize_t capacity
        if wanted > self._capacity:
            capacity = self._capacity + (self._capacity >> 1) + 16
            if capacity < wanted:
                capacity = wanted
            values = <unsigned int *> realloc(self._values, capacity * sizeof(unsigned int))
            if values == NULL:
                raise MemoryError()
            self._values = values
            self._capacity = capacity

    cpdef void append(self, unsigned int value) except *:
        if self.size == self._capacity:
            self._reserve(self.size + 1)
        self._values[self.size] = value
        self.size += 1

    cpdef unsigned int get(self, Py_ssize_t i) except? 0xFFFFFFFE:
        if i < 0 or i >= self.size:
            raise IndexError(i)
        return self._values[i]

    cpdef void set(self, Py_ssize_t i, unsigned int value) except *:
        if i < 0 or i >= self.size:
            raise IndexError(i)
        self._values[i] = value

    cpdef Py_ssize_t next_used(self, Py_ssize_t i) except -2:
        if i < 0:
            i = 0
        while i < self.size:
            if self._values[i] != GONE_ENTRY:
                return i
            i += 1
        return -1

    cpdef Py_ssize_t next_of(self, Py_ssize_t i, SubjectFilter matching) except -2:
        cdef unsigned int wanted
        if i < 0:
            i = 0
        matching.refresh()
        if matching.literal:
            if matching.only < 0:
                return -1
            wanted = <unsigned int> matching.only
            while i < self.size:
                if self._values[i] == wanted:
                    return i
                i += 1
            return -1
        while i < self.size:
            if self._values[i] != GONE_ENTRY and matching.accepts(self._values[i]):
                return i
            i += 1
        return -1

    cpdef Py_ssize_t last_of(self, Py_ssize_t i, unsigned int value) except -2:
        if i >= self.size:
            i = self.size - 1
        while i >= 0:
            if self._values[i] == value:
                return i
            i -= 1
        return -1

    cpdef Py_ssize_t count_of(self, Py_ssize_t start, Py_ssize_t stop, SubjectFilter matching) except -2:
        cdef Py_ssize_t found = 0
        if start < 0:
            start = 0
        if stop > self.size:
            stop = self.size
        matching.refresh()
        while start < stop:
            if self._values[start] != GONE_ENTRY and matching.accepts(self._values[start]):
                found += 1
            start += 1
        return found

    cpdef Py_ssize_t count_used(self, Py_ssize_t start, Py_ssize_t stop) except -2:
        cdef Py_ssize_t found = 0
        if start < 0:
            start = 0
        if stop > self.size:
            stop = self.size
        while start < stop:
            found += self._values[start] != GONE_ENTRY
            start += 1
        return found

    cpdef void truncate(self, Py_ssize_t size) except *:
        if size < 0:
            raise IndexError(size)
        if size < self.size:
            self.size = size

    cpdef bytes pack(self, int width):
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, self.size * width)
        cdef unsigned char *out = <unsigned char *> PyBytes_AS_STRING(packed)
        cdef Py_ssize_t i
        cdef unsigned int value
        for i in range(self.size):
            value = self._values[i]
            if width == 1:
                out[i] = <unsigned char> value
            elif width == 2:
                out[2 * i] = value & 0xFF
                out[2 * i + 1] = (value >> 8) & 0xFF
            else:
                out[4 * i] = value & 0xFF
                out[4 * i + 1] = (value >> 8) & 0xFF
                out[4 * i + 2] = (value >> 16) & 0xFF
                out[4 * i + 3] = (value >> 24) & 0xFF
        return packed

    @staticmethod
    def unpack(bytes packed, int width, list names=None):
        if width not in (1, 2, 4) or PyBytes_GET_SIZE(packed) % width:
            raise ValueError(f"a column cannot have {len(packed)} bytes of numbers of {width}")
        cdef Column column = Column()
        cdef Py_ssize_t n = PyBytes_GET_SIZE(packed) // width
        cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(packed)
        cdef Py_ssize_t i
        cdef unsigned int value
        cdef unsigned int gone = 0xFF if width == 1 else 0xFFFF if width == 2 else GONE_ENTRY
        cdef Column map = Column()
        if names is not None:
            for name in names:
                map.append(name)
        column._reserve(n)
        for i in range(n):
            if width == 1:
                value = view[i]
            elif width == 2:
                value = view[2 * i] | (view[2 * i + 1] << 8)
            else:
                value = view[4 * i] | (view[4 * i + 1] << 8) | (view[4 * i + 2] << 16) | (<unsigned int> view[4 * i + 3] << 24)
            if value == gone:
                value = GONE_ENTRY
            elif names is not None:
                if value >= map.size:
                    raise ValueError("a packed column names an entry that does not exist")
                value = map._values[value]
            column._values[i] = value
        column.size = n
        return column

    def translate(self):
        """Dense names for the values used: (column of names, list of values by name)."""
        cdef Column dense = Column()
        cdef list values = []
        cdef unsigned int highest = 0
        cdef Py_ssize_t i
        cdef unsigned int *names
        cdef unsigned int value
        for i in range(self.size):
            if self._values[i] != GONE_ENTRY and self._values[i] > highest:
                highest = self._values[i]
        names = <unsigned int *> calloc(highest + 1, sizeof(unsigned int))
        if names == NULL:
            raise MemoryError()
        try:
            dense._reserve(self.size)
            for i in range(self.size):
                value = self._values[i]
                if value == GONE_ENTRY:
                    dense._values[i] = GONE_ENTRY
                    continue
                if names[value] == 0:
                    values.append(value)
                    names[value] = <unsigned int> len(values)
                dense._values[i] = names[value] - 1
            dense.size = self.size
        finally:
            free(names)
        return dense, values

    cpdef bytes stats(self, Py_ssize_t names):
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, names * 12)
        cdef unsigned int *out = <unsigned int *> PyBytes_AS_STRING(packed)
        cdef Py_ssize_t i
        cdef unsigned int name
        for i in range(3 * names):
            out[i] = 0
        for i in range(self.size):
            name = self._values[i]
            if name == GONE_ENTRY:
                continue
            if name >= names:
                raise ValueError("a name is larger than said")
            if out[3 * name] == 0:
                out[3 * name + 1] = <unsigned int> i
            out[3 * name] += 1
            out[3 * name + 2] = <unsigned int> i
        return packed

    cpdef void bury(self, bytearray dead) except *:
        cdef Py_ssize_t i
        cdef Py_ssize_t n = len(dead) * 8
        cdef const unsigned char *bits = dead
        for i in range(n if n < self.size else self.size):
            if (bits[i >> 3] >> (i & 7)) & 1:
                self._values[i] = GONE_ENTRY

    cpdef bytes pack_steps(self, unsigned int start):
        cdef bytes packed = PyBytes_FromStringAndSize(NULL, self.size * 4)
        cdef unsigned int *out = <unsigned int *> PyBytes_AS_STRING(packed)
        cdef Py_ssize_t i
        for i in range(self.size):
            out[i] = self._values[i] - start
            start = self._values[i]
        return packed

    @staticmethod
    def unpack_steps(bytes packed, unsigned int start):
        cdef Column column = Column()
        cdef Py_ssize_t n = PyBytes_GET_SIZE(packed) // 4
        cdef const unsigned int *steps = <const unsigned int *> PyBytes_AS_STRING(packed)
        cdef Py_ssize_t i
        column._reserve(n)
        for i in range(n):
            start += steps[i]
            column._values[i] = start
        column.size = n
        return column
