"""The record codec on raw memory; `record.py` is the plain twin and says what the bytes mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from slipstream.log.columns cimport Column, GONE_ENTRY
from slipstream.log.subject_index cimport SubjectFilter, SubjectIndex
from slipstream.wire.buffer cimport OutBuffer
from slipstream.wire.checksum cimport crc32_at

cdef struct Fixed:
    uint32_t crc
    uint32_t length
    uint8_t magic
    uint8_t kind
    uint16_t subject_size
    uint32_t place
    int64_t ts


cdef packed struct PackedHead:  # of a message among many
    uint64_t seq
    int64_t ts
    uint32_t header_size
    uint32_t body_size
    uint16_t subject_size


cdef struct Parts:
    Fixed fixed
    Py_ssize_t subject  # where it begins
    Py_ssize_t header
    Py_ssize_t body
    Py_ssize_t end


cdef extern from *:
    void prefetch "__builtin_prefetch" (const void *at) noexcept nogil

cdef enum:
    CACHE_LINE = 64


cdef inline void fetch_ahead(bytes data, Py_ssize_t at) noexcept:
    """Have the processor fetch the next record's first bytes while this one is worked on: a window
    has come from the kernel, and its bytes are in no near cache."""
    cdef const char *view = PyBytes_AS_STRING(data) + at
    if at + 4 * CACHE_LINE <= PyBytes_GET_SIZE(data):
        prefetch(view)
        prefetch(view + CACHE_LINE)
        prefetch(view + 2 * CACHE_LINE)
        prefetch(view + 3 * CACHE_LINE)


cdef inline bint is_kind(uint8_t kind) noexcept:
    """Whether there are records of this kind with these flags."""
    if kind & (PACKED | MORE | AFTER):
        return (kind & KIND_BITS) == MESSAGE
    return MESSAGE <= (kind & KIND_BITS) <= VOID


cdef inline bint find_parts(bytes data, Py_ssize_t at, Parts *parts) noexcept:
    """Find where the record at `at` has its parts, without its checksum; False if there is none."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t header_size = 0
    if at < 0 or at > n - FIXED_SIZE:
        return False
    memcpy(&parts.fixed, view + at, FIXED_SIZE)
    if parts.fixed.magic != MAGIC or not is_kind(parts.fixed.kind):
        return False
    parts.subject = at + FIXED_SIZE
    if parts.fixed.kind & HAS_HEADER:
        if parts.subject + HEADER_SIZE_BYTES > n:
            return False
        header_size = view[parts.subject] | (view[parts.subject + 1] << 8)
        parts.subject += HEADER_SIZE_BYTES
    parts.header = parts.subject + parts.fixed.subject_size
    parts.body = parts.header + header_size
    parts.end = at + parts.fixed.length
    return parts.body <= parts.end <= n


cdef inline bint checks_out(bytes data, Py_ssize_t at, Parts *parts, uint32_t salt) except -1:
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t start = at + sizeof(uint32_t)
    return crc32_at(view + start, parts.end - start, salt) == parts.fixed.crc


cdef class Record:
    def __init__(self):
        self.subject = b""
        self.data = b""

    cpdef bytes header(self):
        return self.data[self.header_start:self.body_start]

    cpdef bytes body(self):
        return self.data[self.body_start:self.end]


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
    length = FIXED_SIZE + subject_size + end - header_start
    if header_size:
        length += HEADER_SIZE_BYTES
    out._grow(length)
    begin = out._data + out.size
    fixed.length = <uint32_t> length
    fixed.magic = MAGIC
    fixed.kind = <uint8_t> (kind | (HAS_HEADER if header_size else 0))
    fixed.subject_size = <uint16_t> subject_size
    fixed.place = place
    fixed.ts = ts
    fixed.crc = 0
    memcpy(begin, &fixed, FIXED_SIZE)
    at = begin + FIXED_SIZE
    if header_size:
        at[0] = header_size & 0xFF
        at[1] = (header_size >> 8) & 0xFF
        at += HEADER_SIZE_BYTES
    memcpy(at, PyBytes_AS_STRING(subject), subject_size)
    memcpy(at + subject_size, PyBytes_AS_STRING(data) + header_start, end - header_start)
    finish_record(out, begin, length, salt)
    return length


cdef inline int finish_record(OutBuffer out, unsigned char *begin, Py_ssize_t length, uint32_t salt) except -1:
    """The record of `length` bytes at the end of `out` is whole but for its checksum."""
    cdef uint32_t crc = crc32_at(begin + sizeof(uint32_t), length - sizeof(uint32_t), salt)
    memcpy(begin, &crc, sizeof(crc))
    out.size += length
    return 0


cpdef Py_ssize_t encode_number(OutBuffer out, int kind, unsigned int salt, unsigned int place, long long ts, unsigned long long value, Py_ssize_t size) except -1:
    cdef Py_ssize_t length = FIXED_SIZE + size
    cdef Fixed fixed
    cdef unsigned char *begin
    if not 0 < size <= <Py_ssize_t> sizeof(value):
        raise ValueError("a number of a record has one to eight bytes")
    out._grow(length)
    begin = out._data + out.size
    fixed.length = <uint32_t> length
    fixed.magic = MAGIC
    fixed.kind = <uint8_t> kind
    fixed.subject_size = 0
    fixed.place = place
    fixed.ts = ts
    fixed.crc = 0
    memcpy(begin, &fixed, FIXED_SIZE)
    memcpy(begin + FIXED_SIZE, &value, size)
    finish_record(out, begin, length, salt)
    return length


cdef inline void fill(Record record, bytes data, Parts *parts, unsigned long long base):
    cdef const char *subject = PyBytes_AS_STRING(data) + parts.subject
    cdef Py_ssize_t size = parts.fixed.subject_size
    record.seq = base + parts.fixed.place
    record.ts = parts.fixed.ts
    record.kind = parts.fixed.kind & KIND_BITS
    record.packed = (parts.fixed.kind & PACKED) != 0
    # Runs of the same subject are common: keep the object when the bytes are the same.
    if PyBytes_GET_SIZE(record.subject) != size or memcmp(PyBytes_AS_STRING(record.subject), subject, size):
        record.subject = PyBytes_FromStringAndSize(subject, size)
    record.data = data
    record.header_start = parts.header
    record.body_start = parts.body
    record.end = parts.end


cpdef Py_ssize_t peek(bytes data, Py_ssize_t at, unsigned long long base, Record record) except -1:
    cdef Parts parts
    if not find_parts(data, at, &parts):
        return 0
    fill(record, data, &parts, base)
    return parts.end


cpdef Py_ssize_t decode(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long base, Record record) except -1:
    cdef Parts parts
    if not find_parts(data, at, &parts):
        return 0
    fetch_ahead(data, parts.end)
    fill(record, data, &parts, base)
    return parts.end if checks_out(data, at, &parts, salt) else 0


cpdef Py_ssize_t length_at(bytes data, Py_ssize_t at) except -1:
    cdef uint32_t length
    if at < 0 or at > PyBytes_GET_SIZE(data) - FIXED_SIZE:
        return 0
    memcpy(&length, PyBytes_AS_STRING(data) + at + sizeof(uint32_t), sizeof(length))
    return length


cpdef Py_ssize_t resync(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2:
    cdef const char *view = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t magic = at + MAGIC_AT
    cdef const char *found
    cdef Record record = Record()
    while MAGIC_AT <= magic < n:
        found = <const char *> memchr(view + magic, MAGIC, n - magic)
        if found == NULL:
            return -1
        magic = found - view
        if decode(data, magic - MAGIC_AT, salt, 0, record) and record.seq >= place:
            return magic - MAGIC_AT
        magic += 1
    return -1


cpdef Py_ssize_t next_whole(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2:
    cdef Record record = Record()
    cdef Py_ssize_t end = at + length_at(data, at)
    if end >= at + FIXED_SIZE and decode(data, end, salt, 0, record):
        if place <= record.seq <= place + 1:
            return end
    return resync(data, at + 1, salt, place)


cdef class RunCounts:
    cpdef void add(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size, long long ts) except *:
        if self.messages == 0:
            self.first_ts = ts
        self.messages += 1
        self.with_header += header_size > 0
        self.text_bytes += subject_size + header_size + body_size
        self.last_ts = ts


cpdef Py_ssize_t read_run(bytes data, Py_ssize_t at, unsigned int salt, SubjectIndex subjects, unsigned long long base, Column ids, Column offsets, RunCounts counts) except -1:
    cdef const char *view = PyBytes_AS_STRING(data)
    cdef Parts parts
    cdef Py_ssize_t body_size
    cdef uint32_t size
    cdef unsigned int id
    while find_parts(data, at, &parts) and parts.fixed.place == ids.size:
        if parts.fixed.kind == COMMIT:
            if parts.fixed.length != COMMIT_SIZE:
                break
            memcpy(&size, view + parts.body, sizeof(size))
            if size > at or not checks_out(data, at, &parts, salt):
                break
            at = parts.end
            counts.committed = at
            counts.durable = max(counts.durable, <Py_ssize_t> size)
            continue
        if (parts.fixed.kind & KIND_BITS) != MESSAGE or not checks_out(data, at, &parts, salt):
            break
        id = <unsigned int> subjects._intern(view + parts.subject, parts.fixed.subject_size)
        subjects.added(id, base + parts.fixed.place)
        ids.append(id)
        offsets.append(<unsigned int> at)
        body_size = parts.end - parts.body
        if parts.fixed.kind & PACKED and body_size >= sizeof(size):
            memcpy(&size, view + parts.body, sizeof(size))
            body_size = size
        counts.add(parts.fixed.subject_size, parts.body - parts.header, body_size, parts.fixed.ts)
        if parts.fixed.kind & (MORE | AFTER):
            counts.groups = True
        at = parts.end
    return at


def copy_used(bytes data, Column ids, Column offsets, OutBuffer out, Py_ssize_t start):
    cdef Column fresh = Column()
    cdef Py_ssize_t place
    cdef Py_ssize_t at
    cdef Py_ssize_t limit
    cdef Py_ssize_t length
    for place in range(ids.size):
        fresh.append(<unsigned int> (start + out.size))
        if ids.get(place) == GONE_ENTRY:
            continue
        at = offsets.get(place)
        limit = offsets.get(place + 1) if place + 1 < offsets.size else PyBytes_GET_SIZE(data)
        length = length_at(data, at)
        if length < FIXED_SIZE or at + length > limit:
            length = limit - at
        out.put_slice(data, at, at + length)
    return fresh


cdef inline int put_packed(OutBuffer out, uint64_t seq, int64_t ts, Py_ssize_t header_size, Py_ssize_t body_size, const unsigned char *subject, Py_ssize_t subject_size, const unsigned char *content) except -1:
    """Append a message as one of many; `content` is its header block and body."""
    cdef PackedHead head
    cdef unsigned char *to
    cdef Py_ssize_t size = header_size + body_size
    out._grow(<Py_ssize_t> sizeof(head) + subject_size + size)
    head.seq = seq
    head.ts = ts
    head.header_size = <uint32_t> header_size
    head.body_size = <uint32_t> body_size
    head.subject_size = <uint16_t> subject_size
    to = out._data + out.size
    memcpy(to, &head, sizeof(head))
    to += sizeof(head)
    memcpy(to, subject, subject_size)
    memcpy(to + subject_size, content, size)
    out.size += <Py_ssize_t> sizeof(head) + subject_size + size
    return 0


cpdef void copy_message(Record record, OutBuffer out) except *:
    cdef const unsigned char *content = <const unsigned char *> PyBytes_AS_STRING(record.data) + record.header_start
    put_packed(out, record.seq, record.ts, record.body_start - record.header_start, record.end - record.body_start, <const unsigned char *> PyBytes_AS_STRING(record.subject), PyBytes_GET_SIZE(record.subject), content)


cdef class Portion:
    pass


cpdef Py_ssize_t copy_run(bytes data, Py_ssize_t start, unsigned int salt, unsigned long long base, Column ids, Column offsets, Py_ssize_t i, SubjectFilter matching, Portion portion, OutBuffer out) except -1:
    cdef const unsigned char *view = <const unsigned char *> PyBytes_AS_STRING(data)
    cdef Parts parts
    cdef Py_ssize_t copied = 0
    cdef Py_ssize_t at, size
    cdef unsigned int id
    if matching is not None:
        matching.refresh()
    while portion.messages > 0 and portion.bytes > 0 and out.size < portion.size_max:
        if not 0 <= i < min(ids.size, offsets.size) or base + i > portion.end_seq:
            break
        at = <Py_ssize_t> offsets.get(i) - start
        id = ids.get(i)
        if id == GONE_ENTRY or (matching is not None and not matching.accepts(id)):
            if at >= PyBytes_GET_SIZE(data):
                break
            i += 1
            continue
        if not find_parts(data, at, &parts) or parts.fixed.place != <uint32_t> i:
            break
        if parts.fixed.kind & (KIND_BITS | PACKED) != MESSAGE:
            break
        fetch_ahead(data, parts.end)
        size = parts.end - parts.header
        if size >= portion.large or not checks_out(data, at, &parts, salt):
            break
        put_packed(out, base + i, parts.fixed.ts, parts.body - parts.header, parts.end - parts.body, view + parts.subject, parts.fixed.subject_size, view + parts.header)
        portion.messages -= 1
        portion.bytes -= parts.end - parts.subject
        portion.last_seq = base + i
        copied += 1
        i += 1
    return copied
