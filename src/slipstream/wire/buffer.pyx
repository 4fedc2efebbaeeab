"""A growing byte buffer on raw memory; `buffer.py` is its plain twin and says what it means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.string cimport memcpy

from slipstream.wire.ascii cimport CR, LF, MINUS, SPACE, ZERO

# What is put goes right into the bytes object that `take` gives away: until then nobody else knows it,
# so it may grow and change (CPython's own writers do the same).
cdef extern from "Python.h":
    PyObject *_new_bytes "PyBytes_FromStringAndSize"(const char *text, Py_ssize_t size) except NULL
    char *_text_of "PyBytes_AS_STRING"(PyObject *held) noexcept
    int _resize "_PyBytes_Resize"(PyObject **held, Py_ssize_t size) except -1
    void Py_XDECREF(PyObject *held)

cdef Py_ssize_t FIRST_CAPACITY = 512
# An emptied buffer above this gives its memory back: an idle connection holds next to nothing.
cdef Py_ssize_t KEPT_CAPACITY = 4 * 1024
# So much is given away as it is. Less is copied: the C library then finds the same memory for the next,
# where what was cut to size would go back to the system each time.
cdef Py_ssize_t GIVEN_MIN = 512 * 1024
# The next memory is as large as what was taken last, so that a steady flow need not grow again.
cdef Py_ssize_t WANTED_MAX = 4 * 1024 * 1024

# The methods ask `len`, which raises for None; PyBytes_GET_SIZE does not look.
cdef enum:
    DIGITS_MAX = 20
cdef char *BAD_SLICE = "slice outside of the data"
# The numbers below 100, for two digits at a time.
cdef bytes _PAIRS = b"".join([b"%02d" % number for number in range(100)])
PAIRS = _PAIRS


cdef inline unsigned char *write_bytes(unsigned char *to, bytes data) noexcept:
    """Write `data`; where it ends."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    memcpy(to, PyBytes_AS_STRING(data), n)
    return to + n


cdef inline unsigned char *write_word(unsigned char *to, bytes data) noexcept:
    """Write `data` and a blank; where that ends."""
    to = write_bytes(to, data)
    to[0] = SPACE
    return to + 1


cdef inline unsigned char *write_int(unsigned char *to, unsigned long long value) noexcept:
    """Write `value` in decimal; where it ends."""
    cdef unsigned char digits[DIGITS_MAX]
    cdef int at = DIGITS_MAX
    while value >= 100:
        at -= 2
        memcpy(digits + at, PAIRS + 2 * (value % 100), 2)
        value = value // 100
    if value >= 10:
        at -= 2
        memcpy(digits + at, PAIRS + 2 * value, 2)
    else:
        at -= 1
        digits[at] = <unsigned char> (ZERO + value)
    memcpy(to, digits + at, DIGITS_MAX - at)
    return to + (DIGITS_MAX - at)


cdef inline unsigned char *write_line_end(unsigned char *to) noexcept:
    to[0] = CR
    to[1] = LF
    return to + 2


cdef inline unsigned char *write_message_line(
    unsigned char *to, bytes subject, bytes sid, bytes reply, Py_ssize_t header, Py_ssize_t total
) noexcept:
    """The first line of a frame to a subscriber; an HMSG where there is a header."""
    if header:
        to[0] = c"H"
        to += 1
    memcpy(to, b"MSG ", 4)
    to = write_word(to + 4, subject)
    to = write_word(to, sid)
    if PyBytes_GET_SIZE(reply):
        to = write_word(to, reply)
    if header:
        to = write_int(to, header)
        to[0] = SPACE
        to += 1
    return write_line_end(write_int(to, total))


cdef class OutBuffer:
    def __cinit__(self):
        self._held = NULL
        self._data = NULL
        self._capacity = 0
        self._wanted = FIRST_CAPACITY
        self._shares = None
        self.size = 0
        self.shared = 0

    def __dealloc__(self):
        Py_XDECREF(self._held)

    cdef void _grow(self, Py_ssize_t extra) except *:
        cdef Py_ssize_t needed = self.size + extra
        cdef Py_ssize_t capacity
        cdef PyObject *held
        if needed <= self._capacity:
            return
        capacity = self._capacity * 2 if self._capacity else self._wanted
        if capacity < needed:
            capacity = needed
        # Not resized: where memory runs out, that would lose what is there.
        held = _new_bytes(NULL, capacity)
        if self._held != NULL:
            memcpy(_text_of(held), self._data, self.size)
            Py_XDECREF(self._held)
        self._held = held
        self._data = <unsigned char *> _text_of(held)
        self._capacity = capacity

    cpdef void put(self, bytes data) except *:
        cdef Py_ssize_t n = len(data)
        if self.size + n > self._capacity:
            self._grow(n)
        memcpy(self._data + self.size, PyBytes_AS_STRING(data), n)
        self.size += n

    cpdef void put_slice(self, bytes data, Py_ssize_t start, Py_ssize_t end) except *:
        cdef Py_ssize_t n = end - start
        if start < 0 or end < start or end > len(data):
            raise IndexError(BAD_SLICE.decode())
        if self.size + n > self._capacity:
            self._grow(n)
        memcpy(self._data + self.size, PyBytes_AS_STRING(data) + start, n)
        self.size += n

    cpdef void put_rest(self, OutBuffer other, Py_ssize_t start) except *:
        cdef Py_ssize_t n = other.size - start
        if start < 0 or n < 0:
            raise IndexError(BAD_SLICE.decode())
        if self.size + n > self._capacity:
            self._grow(n)
        memcpy(self._data + self.size, other._data + start, n)
        self.size += n

    cpdef void put_byte(self, unsigned char value) except *:
        if self.size == self._capacity:
            self._grow(1)
        self._data[self.size] = value
        self.size += 1

    cpdef void put_int(self, long long value) except *:
        cdef unsigned char *to
        if self.size + DIGITS_MAX + 1 > self._capacity:
            self._grow(DIGITS_MAX + 1)
        to = self._data + self.size
        if value < 0:
            to[0] = MINUS
            to = write_int(to + 1, <unsigned long long> (-(value + 1)) + 1)
        else:
            to = write_int(to, <unsigned long long> value)
        self.size = to - self._data

    cpdef void put_number(self, unsigned long long value, Py_ssize_t width) except *:
        if not 0 < width <= 8:
            raise ValueError("a number has one to eight bytes")
        if width < 8 and value >> (8 * width):
            raise OverflowError("int too big to convert")
        if self.size + width > self._capacity:
            self._grow(width)
        memcpy(self._data + self.size, &value, width)  # the lowest first, as processors have it
        self.size += width

    cpdef void put_message(self, bytes subject, bytes sid, bytes reply, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except *:
        cdef Py_ssize_t header = body_start - header_start
        cdef Py_ssize_t total = end - header_start
        cdef Py_ssize_t room
        cdef unsigned char *to
        if header_start < 0 or body_start < header_start or end < body_start or end > len(data):
            raise IndexError(BAD_SLICE.decode())
        room = len(subject) + len(sid) + len(reply)
        room += total + 2 * DIGITS_MAX + 16
        if self.size + room > self._capacity:
            self._grow(room)
        to = write_message_line(self._data + self.size, subject, sid, reply, header, total)
        memcpy(to, PyBytes_AS_STRING(data) + header_start, total)
        to = write_line_end(to + total)
        self.size = to - self._data

    cpdef void put_message_line(self, bytes subject, bytes sid, bytes reply, Py_ssize_t header, Py_ssize_t total) except *:
        cdef Py_ssize_t room
        cdef unsigned char *to
        room = len(subject) + len(sid) + len(reply)
        room += 2 * DIGITS_MAX + 16
        if self.size + room > self._capacity:
            self._grow(room)
        to = write_message_line(self._data + self.size, subject, sid, reply, header, total)
        self.size = to - self._data

    cpdef void put_publish(self, bytes subject, bytes reply, bytes header, bytes body) except *:
        cdef Py_ssize_t size = len(body)
        cdef unsigned char *to = self._publish_start(subject, reply, header, size, size + 2)
        to = write_line_end(write_bytes(to, body))
        self.size = to - self._data

    cpdef void put_publish_start(self, bytes subject, bytes reply, bytes header, Py_ssize_t size) except *:
        cdef unsigned char *to = self._publish_start(subject, reply, header, size, 0)
        self.size = to - self._data

    cdef unsigned char *_publish_start(self, bytes subject, bytes reply, bytes header, Py_ssize_t size, Py_ssize_t behind) except NULL:
        """Write a frame up to its body, with room for `behind` bytes after that; where it ends."""
        cdef Py_ssize_t total = len(header) + size
        cdef Py_ssize_t room
        cdef unsigned char *to
        room = len(subject) + len(reply) + len(header) + behind + 2 * DIGITS_MAX + 16
        if self.size + room > self._capacity:
            self._grow(room)
        to = self._data + self.size
        if PyBytes_GET_SIZE(header):
            to[0] = c"H"
            to += 1
        memcpy(to, b"PUB ", 4)
        to = write_word(to + 4, subject)
        if PyBytes_GET_SIZE(reply):
            to = write_word(to, reply)
        if PyBytes_GET_SIZE(header):
            to = write_int(to, PyBytes_GET_SIZE(header))
            to[0] = SPACE
            to += 1
        to = write_line_end(write_int(to, total))
        return write_bytes(to, header)

    cpdef bytes take(self):
        cdef bytes taken
        self._wanted = min(max(self.size, FIRST_CAPACITY), WANTED_MAX)
        if self.size >= GIVEN_MIN:
            self._cut()
            taken = <bytes> self._held
        else:
            taken = PyBytes_FromStringAndSize(<char *> self._data, self.size)
        self._empty()
        return taken

    cpdef void share(self, bytes data) except *:
        cdef Py_ssize_t n = len(data)
        if self._shares is None:
            self._shares = []
        if self.size:
            n += self.size
            self._shares.append(self.take())
        self._shares.append(data)
        self.shared += n

    cpdef Py_ssize_t length(self):
        return self.size + self.shared

    cpdef list take_parts(self):
        cdef list parts = self._shares
        self._shares = None
        self.shared = 0
        if parts is None:
            parts = []
        if self.size:
            parts.append(self.take())
        return parts

    cpdef void clear(self) except *:
        self._shares = None
        self.shared = 0
        self._empty()

    cdef void _cut(self) except *:
        """Have the object that is held be as large as what is in it."""
        try:
            _resize(&self._held, self.size)
        except MemoryError:  # not when it becomes smaller, as far as is known
            self._capacity = self.size = 0
            raise
        self._data = <unsigned char *> _text_of(self._held)
        self._capacity = self.size

    cdef void _empty(self) except *:
        self.size = 0
        if self._capacity > KEPT_CAPACITY:
            Py_XDECREF(self._held)
            self._held = NULL
            self._capacity = 0
