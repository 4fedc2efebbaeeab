"""The record codec on raw memory; `record.py` is the plain twin and says what the bytes mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memchr, memcpy

from slipstream.log.columns cimport Column
from slipstream.log.subject_index cimport SubjectIndex
from slipstream.wire.buffer cimport OutBuffer

MESSAGE = 1
SKIP = 2
TOMBSTONE = 3
FRONT = 4
ERASED = 5
END = 6
COMMIT = 7
VOID = 8
MAGIC = 0xA5
HAS_HEADER = 0x10
PACKED = 0x20
MORE = 0x40
AFTER = 0x80
FIXED_SIZE = 24
COMMIT_SIZE = 28

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <stddef.h>

    /* CRC-32 (IEEE 802.3, reflected): table t tells what a byte does to the sum t bytes later, so
       sixteen bytes are looked up independently of each other at each step. */
    #define SLIP_STEP 16
    static uint32_t slip_crc_table[SLIP_STEP][256];
    static int slip_crc_folds = 0;

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
    #if defined(__x86_64__) && defined(__GNUC__)
        slip_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse2");
    #endif
    }

    /* `sum` is the register itself: the inverted checksum. */
    static uint32_t slip_crc_look_up(uint32_t sum, const uint8_t *at, size_t size) {
        const uint8_t *end = at + size;
        for (; end - at >= SLIP_STEP; at += SLIP_STEP) {
            uint32_t next = 0;
            for (int i = 0; i < 4; i++)
                next ^= slip_crc_table[SLIP_STEP - 1 - i][(uint8_t) (sum >> (8 * i)) ^ at[i]];
            for (int i = 4; i < SLIP_STEP; i++) next ^= slip_crc_table[SLIP_STEP - 1 - i][at[i]];
            sum = next;
        }
        for (; end - at >= 4; at += 4) {
            uint32_t next = 0;
            for (int i = 0; i < 4; i++)
                next ^= slip_crc_table[3 - i][(uint8_t) (sum >> (8 * i)) ^ at[i]];
            sum = next;
        }
        for (; at < end; at++) sum = (sum >> 8) ^ slip_crc_table[0][(uint8_t) sum ^ *at];
        return sum;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <emmintrin.h>
    #include <wmmintrin.h>

    /* The two halves of `sum`, each multiplied by what moving it on by the fold's distance means
       modulo the polynomial (x^(8 * distance + 32) and x^(8 * distance - 32)), meet `next`. */
    __attribute__((target("pclmul,sse2")))
    static inline __m128i slip_fold(__m128i sum, __m128i by, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(sum, by, 0x00);
        __m128i high = _mm_clmulepi64_si128(sum, by, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    __attribute__((target("pclmul,sse2")))
    static uint32_t slip_crc_fold(uint32_t sum, const uint8_t *at, size_t size) {
        const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
        const __m128i *from = (const __m128i *) at;
        __m128i lane[4];
        uint8_t rest[16];
        for (int i = 0; i < 4; i++) lane[i] = _mm_loadu_si128(from + i);
        lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int) sum));
        for (from += 4, size -= 64; size >= 64; from += 4, size -= 64)
            for (int i = 0; i < 4; i++)
                lane[i] = slip_fold(lane[i], by_64, _mm_loadu_si128(from + i));
        for (int i = 1; i < 4; i++) lane[0] = slip_fold(lane[0], by_16, lane[i]);
        for (; size >= 16; from++, size -= 16)
            lane[0] = slip_fold(lane[0], by_16, _mm_loadu_si128(from));
        _mm_storeu_si128((__m128i *) rest, lane[0]);
        return slip_crc_look_up(slip_crc_look_up(0, rest, 16), (const uint8_t *) from, size);
    }
    #else
    #define slip_crc_fold slip_crc_look_up
    #endif

    static uint32_t slip_crc32(uint32_t seed, const void *data, size_t size) {
        if (slip_crc_folds && size >= 64)
            return ~slip_crc_fold(~seed, (const uint8_t *) data, size);
        return ~slip_crc_look_up(~seed, (const uint8_t *) data, size);
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
    if header_start < 0 or body_start < header_start or end < body_start or end > PyBytes_GET_SIZE(data):
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


cdef inline bint _is_kind(uint8_t kind) noexcept:
    if kind & 0xE0:
        return (kind & 0x0F) == 1
    return 1 <= (kind & 0x0F) <= 8


cpdef Py_ssize_t peek(bytes data, Py_ssize_t at, unsigned long long base, Record record) except -1:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Fixed fixed
    cdef Py_ssize_t start
    cdef Py_ssize_t header_size = 0
    cdef Py_ssize_t end
    cdef bytes known
    if at < 0 or at > n - 24:
        return 0
    memcpy(&fixed, view + at, 24)
    start = at + 24
    if fixed.kind & 0x10:
        if start + 2 > n:
            return 0
        header_size = view[start] | (view[start + 1] << 8)
        start += 2
    end = at + fixed.length
    if fixed.magic != 0xA5 or not _is_kind(fixed.kind) or end > n or start + fixed.subject_size + header_size > end:
        return 0
    record.seq = base + fixed.place
    record.ts = fixed.ts
    record.kind = fixed.kind & 0x0F
    record.packed = (fixed.kind & 0x20) != 0
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
    if at < 0 or at > PyBytes_GET_SIZE(data) - 24:
        return 0
    memcpy(&length, PyBytes_AS_STRING(data) + at + 4, 4)
    return length


cpdef Py_ssize_t resync(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2:
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
        if decode(data, magic - 8, salt, 0, record) and record.seq >= place:
            return magic - 8
        magic += 1
    return -1


cpdef Py_ssize_t next_whole(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2:
    cdef Record record = Record()
    cdef Py_ssize_t end = at + length_at(data, at)
    if end >= at + 24 and decode(data, end, salt, 0, record):
        if place <= record.seq <= place + 1:
            return end
    return resync(data, at + 1, salt, place)


cdef class Tally:
    cpdef int add(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size, long long ts) except -1:
        if self.messages == 0:
            self.first_ts = ts
        self.messages += 1
        self.with_header += header_size > 0
        self.text_bytes += subject_size + header_size + body_size
        self.last_ts = ts
        return 0


cpdef Py_ssize_t gather(bytes data, Py_ssize_t at, unsigned int salt, SubjectIndex subjects, unsigned long long base, Column ids, Column offsets, Tally tally) except -1:
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef Fixed fixed
    cdef Py_ssize_t start
    cdef Py_ssize_t header_size
    cdef Py_ssize_t body
    cdef uint32_t size
    cdef unsigned int id
    while 0 <= at <= n - 24:
        memcpy(&fixed, view + at, 24)
        start = at + 24
        header_size = 0
        if fixed.magic != 0xA5 or fixed.place != ids.size:
            break
        if fixed.kind == 7:
            if fixed.length != 28 or at + 28 > n:
                break
            memcpy(&size, view + start, 4)
            if size > at or slip_crc32(salt, view + at + 4, 24) != fixed.crc:
                break
            at += 28
            tally.committed = at
            if size > tally.durable:
                tally.durable = size
            continue
        if (fixed.kind & 0x0F) != 1:
            break
        if fixed.kind & 0x10:
            if start + 2 > n:
                break
            header_size = view[start] | (view[start + 1] << 8)
            start += 2
        if at + fixed.length > n or start + fixed.subject_size + header_size > at + fixed.length:
            break
        if slip_crc32(salt, view + at + 4, fixed.length - 4) != fixed.crc:
            break
        id = <unsigned int> subjects._intern(<const char *> view + start, fixed.subject_size)
        subjects.added(id, base + fixed.place)
        ids.append(id)
        offsets.append(<unsigned int> at)
        body = at + fixed.length - start - fixed.subject_size - header_size
        if fixed.kind & 0x20 and body >= 4:
            memcpy(&size, view + at + fixed.length - body, 4)
            body = size
        tally.add(fixed.subject_size, header_size, body, fixed.ts)
        if fixed.kind & 0xC0:
            tally.groups = True
        at += fixed.length
    return at


def copy_used(bytes data, Column ids, Column offsets, OutBuffer out, Py_ssize_t start):
    cdef Column fresh = Column()
    cdef Py_ssize_t place
    cdef Py_ssize_t at
    cdef Py_ssize_t limit
    cdef Py_ssize_t length
    for place in range(ids.size):
        fresh.append(<unsigned int> (start + out.size))
        if ids.get(place) == 0xFFFFFFFF:
            continue
        at = offsets.get(place)
        limit = offsets.get(place + 1) if place + 1 < offsets.size else PyBytes_GET_SIZE(data)
        length = length_at(data, at)
        if length < 24 or at + length > limit:
            length = limit - at
        out.put_slice(data, at, at + length)
    return fresh
