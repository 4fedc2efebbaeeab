"""The record codec on raw memory; `record.py` is the plain twin and says what the bytes mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memchr, memcpy

from slipstream.wire.buffer cimport OutBuffer

MESSAGE = 1
SKIP = 2
TOMBSTONE = 3
FRONT = 4
ERASED = 5
MAGIC = 0xA5
HAS_HEADER = 0x10
FIXED_SIZE = 24

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <stddef.h>

    /* CRC-32 (IEEE 802.3, reflected): table t tells what a byte does to the sum t bytes later, so
       sixteen bytes are looked up independently of each other at each step. */
    #define SLIP_STEP 16
    static uint32_t slip_crc_table[SLIP_STEP][256];

    static void slip_crc_start(void) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t sum = (uint32_t) byte;
            for (int bit = 0; bit < 8; bit++) sum = (sum >> 1) ^ (sum & 1 ? 0xEDB88320u : 0);
            slip_crc_table[0][byte] = sum;
        }
        for (int later = 1; later < SLIP_STEP; later++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t before = slip_crc_table[later - 1][byte];
                slip_crc_table[later][byte] = (before >> 8) ^ slip_crc_table[0][before & 0xFF];
            }
    }

    static uint32_t slip_crc32(uint32_t seed, const void *data, size_t size) {
        const uint8_t *at = (const uint8_t *) data;
        const uint8_t *end = at + size;
        uint32_t sum = ~seed;
        for (; end - at >= SLIP_STEP; at += SLIP_STEP) {
            uint32_t next = 0;
            for (int i = 0; i < 4; i++)
                next ^= slip_crc_table[SLIP_STEP - 1 - i][(uint8_t) (sum >> (8 * i)) ^ at[i]];
            for (int i = 4; i < SLIP_STEP; i++) next ^= slip_crc_table[SLIP_STEP - 1 - i][at[i]];
            sum = next;
        }
        for (; at < end; at++) sum = (sum >> 8) ^ slip_crc_table[0][(uint8_t) sum ^ *at];
        return ~sum;
    }
    """
    void slip_crc_start() nogil
    uint32_t slip_crc32(uint32_t seed, const void *data, size_t n) nogil

slip_crc_start()


cdef struct Fixed:
    uint32_t crc
    uint32_t length
    uint8_t magic
    uint8_t kind
    uint16_t subject_size
    uint32_t place
    int64_t ts


cdef class Record:
    def __init__(self):
        self.subject = b""
        self.data = b""

    cpdef bytes header(self):
        return self.data[self.header_start:self.body_start]

    cpdef bytes body(self):
        return self.data[self.body_start:self.end]


cpdef unsigned int crc32(bytes data, Py_ssize_t start, Py_ssize_t end, unsigned int seed):
    if start < 0:
        start = 0
    if end > PyBytes_GET_SIZE(data):
        end = PyBytes_GET_SIZE(data)
    if end <= start:
        return seed
    return slip_crc32(seed, PyBytes_AS_STRING(data) + start, end - start)


cpdef Py_ssize_t encode(OutBuffer out, int kind, unsigned int salt, unsigned int place, long long ts, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -1:
    cdef Py_ssize_t subject_size = PyBytes_GET_SIZE(subject)
    cdef Py_ssize_t header_size = body_start - header_start
    cdef Py_ssize_t length
    cdef Fixed fixed
    cdef unsigned char *at
    cdef unsigned char *begin
    if header_start < 0 or header_size < 0 or end < body_start or end > PyBytes_GET_SIZE(data):
        raise IndexError("a record's parts lie outside of its data")
    if header_size > 0xFFFF or subject_size > 0xFFFF:
        raise ValueError("a record's subject or header block is longer than 65,535 bytes")
    length = 24 + (2 if header_size else 0) + subject_size + end - header_start
    out._grow(length)
    begin = out._data + out.size
    fixed.length = <uint32_t> length
    fixed.magic = 0xA5
    fixed.kind = <uint8_t> (kind | (0x10 if header_size else 0))
    fixed.subject_size = <uint16_t> subject_size
    fixed.place = place
    fixed.ts = ts
    fixed.crc = 0
    memcpy(begin, &fixed, 24)
    at = begin + 24
    if header_size:
        at[0] = header_size & 0xFF
        at[1] = (header_size >> 8) & 0xFF
        at += 2
    memcpy(at, PyBytes_AS_STRING(subject), subject_size)
    memcpy(at + subject_size, PyBytes_AS_STRING(data) + header_start, end - header_start)
    fixed.crc = slip_crc32(salt, begin + 4, length - 4)
    memcpy(begin, &fixed.crc, 4)
    out.size += length
    return length


cpdef Py_ssize_t peek(bytes data, Py_ssize_t at, unsigned long long base, Record record) except -1:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Fixed fixed
    cdef Py_ssize_t start
    cdef Py_ssize_t header_size = 0
    cdef Py_ssize_t end
    cdef bytes known
    if at < 0 or at + 24 > n:
        return 0
    memcpy(&fixed, view + at, 24)
    start = at + 24
    if fixed.kind & 0x10:
        if start + 2 > n:
            return 0
        header_size = view[start] | (view[start + 1] << 8)
        start += 2
    end = at + fixed.length
    if fixed.magic != 0xA5 or end > n or start + fixed.subject_size + header_size > end:
        return 0
    record.seq = base + fixed.place
    record.ts = fixed.ts
    record.kind = fixed.kind & 0x0F
    # Runs of the same subject are common: keep the object when the bytes are the same.
    known = record.subject
    if PyBytes_GET_SIZE(known) != fixed.subject_size or _differ(
        PyBytes_AS_STRING(known), <const char *> view + start, fixed.subject_size
    ):
        record.subject = PyBytes_FromStringAndSize(<const char *> view + start, fixed.subject_size)
    record.data = data
    record.header_start = start + fixed.subject_size
    record.body_start = record.header_start + header_size
    record.end = end
    return end


cdef inline bint _differ(const char *a, const char *b, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if a[i] != b[i]:
            return True
    return False


cpdef Py_ssize_t decode(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long base, Record record) except -1:
    cdef Py_ssize_t end = peek(data, at, base, record)
    cdef uint32_t crc
    if not end:
        return 0
    memcpy(&crc, PyBytes_AS_STRING(data) + at, 4)
    if slip_crc32(salt, PyBytes_AS_STRING(data) + at + 4, end - at - 4) != crc:
        return 0
    return end


cpdef Py_ssize_t length_at(bytes data, Py_ssize_t at) except -1:
    cdef uint32_t length
    if at < 0 or at + 24 > PyBytes_GET_SIZE(data):
        return 0
    memcpy(&length, PyBytes_AS_STRING(data) + at + 4, 4)
    return length


cpdef Py_ssize_t resync(bytes data, Py_ssize_t at, unsigned int salt) except -2:
    cdef const char *view = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t magic = at + 8
    cdef const char *found
    cdef Record record = Record()
    while 8 <= magic < n:
        found = <const char *> memchr(view + magic, 0xA5, n - magic)
        if found == NULL:
            return -1
        magic = found - view
        if decode(data, magic - 8, salt, 0, record):
            return magic - 8
        magic += 1
    return -1
