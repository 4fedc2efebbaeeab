"""Rows of Arrow columns as HPUB frames, on raw memory; `row_block.py` is the plain twin and says
what it means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from slipstream.model.header_fields import NATS_MSG_ID
from slipstream.wire.ascii cimport CR, DOT, FF, LF, SPACE, TAB

TO_SEND = 0
SENT = 1
STORED = 2
LEFT_OUT = 3
REFUSED = 4

SUBJECTS_MAX_BYTES = 4000

cdef enum:
    _TO_SEND = 0
    _SENT = 1
    _LEFT_OUT = 3
    _REFUSED = 4
    _SUBJECT_MAX = 4000
    _DIGITS_MAX = 20
    # What a frame has besides its parts: verb, blanks, three numbers, line ends, first line, digest.
    _OVERHEAD = 192

cdef char *VERSION = "NATS/1.0\r\n"
cdef bytes _MESSAGE_ID = NATS_MSG_ID + b": "
cdef const char *MESSAGE_ID = _MESSAGE_ID
cdef char *HEX = "0123456789abcdef"
cdef char *BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef class Cells:
    """A column's buffers, held as long as this lives."""

    def __cinit__(self, Py_ssize_t count, column):
        cdef Py_ssize_t start, row
        cdef int low = 0
        start, offsets, data = column
        PyObject_GetBuffer(offsets, &self._offsets_view, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &self._data_view, PyBUF_SIMPLE)
        if start < 0 or start > self._offsets_view.len // 4 - count - 1:
            raise ValueError("a column has fewer offsets than rows")
        self.offsets = <const int *> self._offsets_view.buf + start
        self.data = <const unsigned char *> self._data_view.buf
        for row in range(count + 1):
            if self.offsets[row] < low or self.offsets[row] > self._data_view.len:
                raise ValueError("a column reaches outside of its bytes")
            low = self.offsets[row]

    def __dealloc__(self):
        PyBuffer_Release(&self._offsets_view)
        PyBuffer_Release(&self._data_view)

    cdef bytes at(self, Py_ssize_t row):
        return PyBytes_FromStringAndSize(
            <const char *> self.data + self.offsets[row], self.offsets[row + 1] - self.offsets[row]
        )


cdef inline uint64_t rotl(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotl(v[1], 13) ^ v[0]
    v[0] = rotl(v[0], 32)
    v[2] += v[3]
    v[3] = rotl(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotl(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotl(v[1], 17) ^ v[2]
    v[2] = rotl(v[2], 32)


cdef uint64_t word_at(const unsigned char *data, Py_ssize_t n) noexcept nogil:
    """The little-endian number of the first `n` bytes."""
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    for i in range(n):
        word |= <uint64_t> data[i] << (8 * i)
    return word


cdef void sip(uint64_t k0, uint64_t k1, const unsigned char *data, Py_ssize_t size, uint64_t *low, uint64_t *high) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t whole = size >> 3
    cdef Py_ssize_t i
    v[0] = k0 ^ <uint64_t> 0x736F6D6570736575
    v[1] = k1 ^ <uint64_t> 0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t> 0x6C7967656E657261
    v[3] = k1 ^ <uint64_t> 0x7465646279746573
    for i in range(whole):
        word = word_at(data + i * 8, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    word = word_at(data + whole * 8, size & 7) | (<uint64_t> (size & 0xFF) << 56)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for i in range(4):
        sip_round(v)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        sip_round(v)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


def siphash(bytes key, bytes data):
    """SipHash-2-4 with a result of 16 bytes."""
    cdef uint64_t low, high
    cdef const unsigned char *k = key
    if len(key) != 16:
        raise ValueError("the key has 16 bytes")
    sip(word_at(k, 8), word_at(k + 8, 8), data, len(data), &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


cdef void put_word(unsigned char *to, uint64_t word, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = (word >> (8 * i)) & 0xFF


cdef inline unsigned char *put(unsigned char *to, const void *data, Py_ssize_t n) noexcept nogil:
    memcpy(to, data, n)
    return to + n


cdef unsigned char *put_number(unsigned char *to, uint64_t value) noexcept nogil:
    cdef unsigned char digits[20]
    cdef int at = _DIGITS_MAX
    while True:
        at -= 1
        digits[at] = <unsigned char> (48 + value % 10)
        value = value // 10
        if value == 0:
            break
    return put(to, digits + at, _DIGITS_MAX - at)




cdef unsigned char *put_hex(unsigned char *to, const unsigned char *digest) noexcept nogil:
    cdef int i
    for i in range(16):
        to[0] = HEX[digest[i] >> 4]
        to[1] = HEX[digest[i] & 15]
        to += 2
    return to


cdef unsigned char *put_base64(unsigned char *to, const unsigned char *digest) noexcept nogil:
    """16 bytes as 22 characters: five groups of three bytes, and one byte that is left."""
    cdef int i
    for i in range(0, 15, 3):
        to[0] = BASE64[digest[i] >> 2]
        to[1] = BASE64[(digest[i] & 3) << 4 | digest[i + 1] >> 4]
        to[2] = BASE64[(digest[i + 1] & 15) << 2 | digest[i + 2] >> 6]
        to[3] = BASE64[digest[i + 2] & 63]
        to += 4
    to[0] = BASE64[digest[15] >> 2]
    to[1] = BASE64[(digest[15] & 3) << 4]
    return to + 2


cdef bint is_sound(const unsigned char *subject, Py_ssize_t n) noexcept nogil:
    """Whether a server would route it."""
    cdef Py_ssize_t i
    cdef unsigned char c
    cdef unsigned char previous = DOT
    if n == 0 or n > _SUBJECT_MAX:
        return False
    for i in range(n):
        c = subject[i]
        if c == SPACE or c == CR or c == LF or c == TAB or c == FF:
            return False
        if c == DOT and previous == DOT:
            return False
        previous = c
    return previous != DOT


cdef struct Slice:
    const unsigned char *data
    Py_ssize_t size


cdef inline Slice cell(Cells cells, Py_ssize_t row) noexcept:
    cdef Slice found
    found.data = cells.data + cells.offsets[row]
    found.size = cells.offsets[row + 1] - cells.offsets[row]
    return found


cdef inline Slice whole(bytes text) noexcept:
    cdef Slice found
    found.data = <const unsigned char *> PyBytes_AS_STRING(text)
    found.size = PyBytes_GET_SIZE(text)
    return found


cdef class RowBlock:
    def __init__(self, Py_ssize_t count, subjects, bodies, extras=None, ids=None):
        if count < 0:
            raise ValueError("a block has no fewer than no rows")
        self.count = count
        self.states = bytearray(count)
        self._states = <unsigned char *> PyByteArray_AS_STRING(self.states)
        self.digests = b""
        self.sum_low = self.sum_high = 0
        self.first_token = 0
        self.left = count
        self.in_flight = self.next_row = 0
        self.sequence = 0
        self.payload = 0
        self._subject = b""
        self._subjects = None
        if isinstance(subjects, bytes):
            self._subject = subjects
        else:
            self._subjects = Cells(count, subjects)
        self._bodies = Cells(count, bodies)
        self._extras = None if extras is None else Cells(count, extras)
        self._ids = None if ids is None else Cells(count, ids)

    cdef void _check(self, Py_ssize_t row) except *:
        if not 0 <= row < self.count:
            raise IndexError(row)

    cpdef bytes subject(self, Py_ssize_t row):
        self._check(row)
        return self._subject if self._subjects is None else self._subjects.at(row)

    cpdef bytes body(self, Py_ssize_t row):
        self._check(row)
        return self._bodies.at(row)

    cpdef bytes extra(self, Py_ssize_t row):
        self._check(row)
        return b"" if self._extras is None else self._extras.at(row)

    cpdef bytes message_id(self, Py_ssize_t row):
        self._check(row)
        return b"" if self._ids is None else self._ids.at(row)

    cpdef digest(self, bytes key):
        cdef const unsigned char *k = key
        cdef uint64_t k0, k1, low, high
        cdef Py_ssize_t row, i, size
        cdef Py_ssize_t room = 4096
        cdef Slice parts[4]
        cdef unsigned char *scratch
        cdef unsigned char *at
        cdef unsigned char *grown
        cdef bytes made = PyBytes_FromStringAndSize(NULL, self.count * 16)
        cdef unsigned char *to = <unsigned char *> PyBytes_AS_STRING(made)
        if len(key) != 16:
            raise ValueError("the key has 16 bytes")
        k0 = word_at(k, 8)
        k1 = word_at(k + 8, 8)
        scratch = <unsigned char *> malloc(room)
        if scratch == NULL:
            raise MemoryError()
        try:
            for row in range(self.count):
                parts[0] = whole(self._subject) if self._subjects is None else cell(self._subjects, row)
                parts[1] = whole(b"") if self._ids is None else cell(self._ids, row)
                parts[2] = whole(b"") if self._extras is None else cell(self._extras, row)
                parts[3] = cell(self._bodies, row)
                size = 12 + parts[0].size + parts[1].size + parts[2].size + parts[3].size
                if size > room:
                    grown = <unsigned char *> realloc(scratch, size * 2)
                    if grown == NULL:
                        raise MemoryError()
                    scratch = grown
                    room = size * 2
                at = scratch
                for i in range(3):
                    put_word(at, parts[i].size, 4)
                    at += 4
                for i in range(4):
                    at = put(at, parts[i].data, parts[i].size)
                sip(k0, k1, scratch, size, &low, &high)
                put_word(to + row * 16, low, 8)
                put_word(to + row * 16 + 8, high, 8)
                self.sum_low += low
                self.sum_high += high
        finally:
            free(scratch)
        self.digests = made

    cpdef number_equals(self, bytes key, dict seen):
        cdef list found = []
        cdef bytes digest
        cdef Py_ssize_t at
        for at in range(0, len(self.digests), 16):
            digest = self.digests[at : at + 16]
            nth = seen.get(digest, 0) + 1
            seen[digest] = nth
            found.append(digest if nth == 1 else siphash(key, digest + nth.to_bytes(8, "little")))
        self.digests = b"".join(found)

    cpdef tell_apart(self, bytes key, list places):
        cdef list found = []
        cdef Py_ssize_t row
        for row in range(len(places)):
            found.append(siphash(key, self.digests[row * 16 : row * 16 + 16] + places[row]))
        self.digests = b"".join(found)

    cpdef bytes frames(self, bytes inbox, bytes lines, bytes label, Py_ssize_t payload_max, Py_ssize_t rows_max, Py_ssize_t size):
        cdef Slice subject, body, extra, own, prefix, fields, mark
        cdef Py_ssize_t row, header, total, needed
        cdef Py_ssize_t written = 0
        cdef Py_ssize_t rows = 0
        cdef Py_ssize_t room = size + 65536
        cdef bint labelled
        cdef bint is_id = label.startswith(NATS_MSG_ID)
        cdef unsigned char *data
        cdef unsigned char *grown
        cdef unsigned char *to
        cdef const unsigned char *digest = NULL
        if rows_max <= 0 or size <= 0:
            return b""
        if label and PyBytes_GET_SIZE(self.digests) != self.count * 16:
            raise ValueError("a label needs digests")
        digest = <const unsigned char *> PyBytes_AS_STRING(self.digests)
        prefix, fields, mark = whole(inbox), whole(lines), whole(label)
        data = <unsigned char *> malloc(room)
        if data == NULL:
            raise MemoryError()
        try:
            while self.next_row < self.count and rows < rows_max and written < size:
                row = self.next_row
                self.next_row += 1
                if self._states[row] != _TO_SEND:
                    continue
                subject = whole(self._subject) if self._subjects is None else cell(self._subjects, row)
                extra = whole(b"") if self._extras is None else cell(self._extras, row)
                own = whole(b"") if self._ids is None else cell(self._ids, row)
                body = cell(self._bodies, row)
                labelled = mark.size > 0 and not (is_id and own.size > 0)
                header = fields.size + extra.size
                if labelled:
                    header += mark.size + (34 if is_id else 24)
                if own.size:
                    header += own.size + 15
                if header:
                    header += 12
                total = header + body.size
                if total > payload_max or not is_sound(subject.data, subject.size):
                    self.refuse(row)
                    continue
                needed = written + subject.size + prefix.size + total + _OVERHEAD
                if needed > room:
                    grown = <unsigned char *> realloc(data, needed * 2)
                    if grown == NULL:
                        raise MemoryError()
                    data = grown
                    room = needed * 2
                to = data + written
                to = put(to, b"HPUB ", 5) if header else put(to, b"PUB ", 4)
                to = put(to, subject.data, subject.size)
                to[0] = SPACE
                to = put(to + 1, prefix.data, prefix.size)
                to = put_number(to, self.first_token + row)
                to[0] = SPACE
                to += 1
                if header:
                    to = put_number(to, header)
                    to[0] = SPACE
                    to += 1
                to = put_number(to, total)
                to = put(to, b"\r\n", 2)
                if header:
                    to = put(to, VERSION, 10)
                    to = put(to, fields.data, fields.size)
                    to = put(to, extra.data, extra.size)
                    if labelled:
                        to = put(to, mark.data, mark.size)
                        if is_id:
                            to = put_hex(to, digest + row * 16)
                        else:
                            to = put_base64(to, digest + row * 16)
                        to = put(to, b"\r\n", 2)
                    if own.size:
                        to = put(to, MESSAGE_ID, len(_MESSAGE_ID))
                        to = put(to, own.data, own.size)
                        to = put(to, b"\r\n", 2)
                    to = put(to, b"\r\n", 2)
                to = put(to, body.data, body.size)
                to = put(to, b"\r\n", 2)
                written = to - data
                rows += 1
                self.payload += total
                self._states[row] = _SENT
                self.in_flight += 1
            return PyBytes_FromStringAndSize(<char *> data, written)
        finally:
            free(data)

    cpdef bint settle(self, Py_ssize_t row, int state, unsigned long long sequence=0) except -1:
        if row < 0 or row >= self.count or self._states[row] != _SENT:
            return False
        self._states[row] = state
        self.in_flight -= 1
        if state != _TO_SEND:
            self.left -= 1
        if sequence > self.sequence:
            self.sequence = sequence
        return True

    cpdef leave_out(self, Py_ssize_t row):
        self._check(row)
        if self._states[row] == _TO_SEND:
            self._states[row] = _LEFT_OUT
            self.left -= 1

    cpdef refuse(self, Py_ssize_t row):
        self._check(row)
        if self._states[row] == _TO_SEND:
            self._states[row] = _REFUSED
            self.left -= 1

    cpdef rewind(self):
        self.next_row = 0

    cpdef send_again(self):
        cdef Py_ssize_t row
        for row in range(self.count):
            if self._states[row] == _SENT:
                self._states[row] = _TO_SEND
        self.in_flight = 0
        self.next_row = 0
