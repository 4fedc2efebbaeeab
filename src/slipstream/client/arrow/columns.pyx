"""Messages as columns on raw memory; `columns.py` is the plain twin and says what they mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from slipstream.model.ack_subject cimport AckSubject
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_NUM_PENDING,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
    SLIPSTREAM_PACKED,
)
from slipstream.wire.ascii cimport COLON, CR, DOT, LF, MINUS, NINE, PLUS, SPACE, TAB, ZERO

ADDED = 1
STATUS = 0
BEYOND = 2
GAP = 3
MALFORMED = -1

SUBJECT = 1
TIMESTAMP = 2
HEADERS = 4
DATA = 8
SIZE = 16
REPLY = 32

cdef enum:
    _ADDED = 1
    _STATUS = 0
    _BEYOND = 2
    _GAP = 3
    _MALFORMED = -1
    _SUBJECT = 1
    _TIMESTAMP = 2
    _HEADERS = 4
    _DATA = 8
    _SIZE = 16
    _REPLY = 32
    # The headers that a direct get appends, as bits.
    OF_STREAM = 1
    OF_SUBJECT = 2
    OF_SEQUENCE = 4
    OF_TIME = 8
    OF_PENDING = 16
    OF_LAST = 32
    OF_PACKED = 64
    # Which buffer is which in MessageColumns._columns.
    SEQUENCES = 0
    TIMESTAMPS = 1
    SIZES = 2
    SUBJECT_OFFSETS = 3
    SUBJECTS = 4
    REPLY_OFFSETS = 5
    REPLIES = 6
    BODY_OFFSETS = 7
    BODIES = 8
    MAP_OFFSETS = 9
    NAME_OFFSETS = 10
    NAMES = 11
    LIST_OFFSETS = 12
    VALUE_OFFSETS = 13
    VALUES = 14
    COLUMNS = 16

cdef long long INT64_LIMIT = 0x7FFFFFFFFFFFFFFF
cdef Py_ssize_t INT32_LIMIT = 0x7FFFFFFF
cdef Py_ssize_t CAPACITY_FIRST = 4096
cdef char *BAD_SLICE = "slice outside of the data"
cdef char *VERSION = "NATS/1.0"
cdef bytes _stream = NATS_STREAM, _subject = NATS_SUBJECT, _sequence = NATS_SEQUENCE
cdef bytes _time = NATS_TIME_STAMP, _pending = NATS_NUM_PENDING, _last = NATS_LAST_SEQUENCE
cdef bytes _packed = SLIPSTREAM_PACKED
cdef Py_ssize_t STREAM_LENGTH = len(_stream), SUBJECT_LENGTH = len(_subject)
cdef Py_ssize_t SEQUENCE_LENGTH = len(_sequence), TIME_LENGTH = len(_time)
cdef Py_ssize_t PENDING_LENGTH = len(_pending), LAST_LENGTH = len(_last)
cdef Py_ssize_t PACKED_LENGTH = len(_packed)
cdef const char *STREAM_NAME = _stream
cdef const char *SUBJECT_NAME = _subject
cdef const char *SEQUENCE_NAME = _sequence
cdef const char *TIME_NAME = _time
cdef const char *PENDING_NAME = _pending
cdef const char *LAST_NAME = _last
cdef const char *PACKED_NAME = _packed


# What stands before each message of a packed answer, without padding.
cdef packed struct PackedHead:
    uint64_t sequence
    int64_t timestamp
    uint32_t header_size
    uint32_t body_size
    uint16_t subject_size


# These return 0, or -1 with an error: as `void` with `except *` each call would be followed by a look
# at the thread's error, and a message would take up to 40% longer.
cdef inline int reserve(Bytes *column, Py_ssize_t extra) except -1:
    cdef Py_ssize_t capacity
    cdef unsigned char *data
    if column.size + extra <= column.capacity:
        return 0
    capacity = column.capacity * 2 if column.capacity else CAPACITY_FIRST
    if capacity < column.size + extra:
        capacity = column.size + extra
    data = <unsigned char *> realloc(column.data, capacity)
    if data == NULL:
        raise MemoryError()
    column.data = data
    column.capacity = capacity
    return 0


cdef inline int push(Bytes *column, const unsigned char *data, Py_ssize_t n) except -1:
    reserve(column, n)
    memcpy(column.data + column.size, data, n)
    column.size += n
    return 0


cdef inline int push_int64(Bytes *column, long long value) except -1:
    reserve(column, 8)
    memcpy(column.data + column.size, &value, 8)
    column.size += 8
    return 0


cdef inline int push_offset(Bytes *column, Py_ssize_t value) except -1:
    cdef int offset = <int> value
    reserve(column, 4)
    memcpy(column.data + column.size, &offset, 4)
    column.size += 4
    return 0


cdef int push_text(Bytes *offsets, Bytes *column, const unsigned char *data, Py_ssize_t n) except -1:
    """Append text; what is not UTF-8 in it is replaced, as Arrow demands."""
    cdef Py_ssize_t i
    cdef unsigned char high = 0
    cdef bytes clean
    for i in range(n):
        high |= data[i]
    if high & 0x80:
        clean = data[:n].decode("utf-8", "replace").encode()
        if column.size + PyBytes_GET_SIZE(clean) > INT32_LIMIT:
            raise OverflowError("a batch holds at most 2 GiB: take it before adding more")
        push(column, <const unsigned char *> PyBytes_AS_STRING(clean), PyBytes_GET_SIZE(clean))
    else:
        push(column, data, n)
    return push_offset(offsets, column.size)


cdef long long number(const unsigned char *view, Py_ssize_t at, Py_ssize_t end) noexcept:
    """The decimal number in a slice, -1 for anything else."""
    cdef unsigned long long value = 0
    if at >= end or end - at > 19:
        return -1
    while at < end:
        if view[at] < ZERO or view[at] > NINE:
            return -1
        value = value * 10 + (view[at] - ZERO)
        at += 1
    return <long long> value if value <= <unsigned long long> INT64_LIMIT else -1


cdef long long days_of(long long year, long long month, long long day) noexcept:
    """Days since the epoch in the proleptic Gregorian calendar; months from March on."""
    cdef long long era, year_of_era, day_of_year
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


cdef int read_time(const unsigned char *view, Py_ssize_t at, Py_ssize_t end, long long *ns) noexcept:
    """Nanoseconds since the epoch of an RFC 3339 time; 0 if it is not one."""
    cdef long long year, month, day, hour, minute, second, offset_hour, offset_minute, seconds
    cdef long long fraction = 0
    cdef long long offset = 0
    cdef int digits = 0
    if end - at < 20:
        return 0
    if view[at + 4] != MINUS or view[at + 7] != MINUS or view[at + 10] != c"T" or view[at + 13] != COLON or view[at + 16] != COLON:
        return 0
    year = number(view, at, at + 4)
    month = number(view, at + 5, at + 7)
    day = number(view, at + 8, at + 10)
    hour = number(view, at + 11, at + 13)
    minute = number(view, at + 14, at + 16)
    second = number(view, at + 17, at + 19)
    if year < 1 or hour < 0 or minute < 0 or second < 0:
        return 0
    if month < 1 or month > 12 or day < 1 or day > 31:
        return 0
    at += 19
    if view[at] == DOT:
        at += 1
        while at < end and ZERO <= view[at] <= NINE:
            fraction = fraction * 10 + (view[at] - ZERO)
            digits += 1
            at += 1
            if digits > 9:
                return 0
        if digits == 0:
            return 0
        while digits < 9:
            fraction *= 10
            digits += 1
    if at >= end:
        return 0
    if view[at] != c"Z":
        if end - at != 6 or view[at + 3] != COLON:
            return 0
        offset_hour = number(view, at + 1, at + 3)
        offset_minute = number(view, at + 4, at + 6)
        if offset_hour < 0 or offset_minute < 0:
            return 0
        offset = offset_hour * 3600 + offset_minute * 60
        if view[at] == MINUS:
            offset = -offset
        elif view[at] != PLUS:
            return 0
    elif end - at != 1:
        return 0
    seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
    if seconds < -9223372036 or seconds > 9223372035:
        return 0
    ns[0] = seconds * 1000000000 + fraction
    return 1


cdef inline bint spells(const unsigned char *view, Field *field, const char *name) noexcept:
    return memcmp(view + field.name, name, field.name_end - field.name) == 0


cdef int kind_of(const unsigned char *view, Field *field) noexcept:
    """Which of the headers that a direct get appends this is, as a bit; 0 for another."""
    cdef Py_ssize_t n = field.name_end - field.name
    if n == STREAM_LENGTH:
        return OF_STREAM if spells(view, field, STREAM_NAME) else 0
    if n == SUBJECT_LENGTH:
        return OF_SUBJECT if spells(view, field, SUBJECT_NAME) else 0
    if n == SEQUENCE_LENGTH:
        return OF_SEQUENCE if spells(view, field, SEQUENCE_NAME) else 0
    if n == TIME_LENGTH:
        return OF_TIME if spells(view, field, TIME_NAME) else 0
    if n == PENDING_LENGTH:
        return OF_PENDING if spells(view, field, PENDING_NAME) else 0
    if n == LAST_LENGTH:
        return OF_LAST if spells(view, field, LAST_NAME) else 0
    if n == PACKED_LENGTH:
        return OF_PACKED if spells(view, field, PACKED_NAME) else 0
    return 0


cdef inline bint has_status(const unsigned char *view, Py_ssize_t at, Py_ssize_t end) noexcept:
    return end - at > 9 and view[at + 8] == SPACE and ZERO <= view[at + 9] <= NINE


cdef class MessageColumns:
    def __cinit__(self, int wanted):
        cdef int i
        for i in range(COLUMNS):
            self._columns[i].data = NULL
            self._columns[i].size = 0
            self._columns[i].capacity = 0
        self._fields = NULL
        self._fields_room = 0
        self._found = 0
        self.wanted = wanted
        self.last_wanted = INT64_LIMIT
        self.time_end = INT64_LIMIT
        self.expected = 0
        self.after = 0
        self._ack = AckSubject()
        self.ordered = False
        self.sequence = 0
        self.timestamp = 0
        self.pending = 0
        self._clear()

    def __dealloc__(self):
        cdef int i
        for i in range(COLUMNS):
            free(self._columns[i].data)
        free(self._fields)

    cdef void _clear(self) except *:
        cdef int i
        self.rows = 0
        self.size = 0
        for i in range(COLUMNS):
            self._columns[i].size = 0
        for i in (SUBJECT_OFFSETS, REPLY_OFFSETS, BODY_OFFSETS, MAP_OFFSETS, NAME_OFFSETS, LIST_OFFSETS, VALUE_OFFSETS):
            push_offset(&self._columns[i], 0)

    cdef void _read_fields(self, const unsigned char *view, Py_ssize_t at, Py_ssize_t end) except *:
        """The fields of the block's lines after its first, into `_fields`.

        This is `wire.headers.fields` with memchr: with that scanner a direct get's answer takes
        half as long again (280 ns where it takes 190 ns). The twin uses the scanner itself.
        """
        cdef const unsigned char *found
        cdef Field *fields
        cdef Field *field
        cdef Py_ssize_t line_end
        cdef Py_ssize_t next_line
        cdef Py_ssize_t room
        self._found = 0
        found = <const unsigned char *> memchr(view + at, LF, end - at)
        if found == NULL:
            return
        at = found - view + 1
        while at < end:
            found = <const unsigned char *> memchr(view + at, LF, end - at)
            line_end = found - view if found != NULL else end
            next_line = line_end + 1
            found = <const unsigned char *> memchr(view + at, CR, line_end - at)
            if found != NULL:
                line_end = found - view
            found = <const unsigned char *> memchr(view + at, COLON, line_end - at)
            if found != NULL:
                if self._found == self._fields_room:
                    room = self._fields_room * 2 + 16
                    fields = <Field *> realloc(self._fields, room * sizeof(Field))
                    if fields == NULL:
                        raise MemoryError()
                    self._fields = fields
                    self._fields_room = room
                field = &self._fields[self._found]
                self._found += 1
                field.used = False
                field.name = at
                field.name_end = found - view
                field.value = field.name_end + 1
                field.value_end = line_end
                while field.value < line_end and (view[field.value] == SPACE or view[field.value] == TAB):
                    field.value += 1
                while field.value_end > field.value and (view[field.value_end - 1] == SPACE or view[field.value_end - 1] == TAB):
                    field.value_end -= 1
            at = next_line

    cpdef int add_direct(self, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -100:
        cdef const unsigned char *view
        cdef Field *field
        cdef Field *subject = NULL
        cdef int seen = 0
        cdef int kind
        cdef int result
        cdef bint has_time = False
        cdef long long sequence = -1
        cdef long long timestamp = 0
        cdef long long pending = -1
        cdef long long previous = 0
        if header_start < 0 or body_start < header_start or end < body_start or end > len(data):
            raise IndexError(BAD_SLICE.decode())
        view = <const unsigned char *> PyBytes_AS_STRING(data)
        if body_start - header_start < 8 or memcmp(view + header_start, VERSION, 8) != 0:
            return _MALFORMED
        if has_status(view, header_start, body_start):
            return _STATUS
        self._read_fields(view, header_start, body_start)
        while self._found:
            field = &self._fields[self._found - 1]
            kind = kind_of(view, field)
            if kind == 0 or seen & kind or (kind == OF_PACKED and seen & OF_SEQUENCE):
                break
            seen |= kind
            self._found -= 1
            if kind == OF_SUBJECT:
                subject = field
            elif kind == OF_SEQUENCE:
                sequence = number(view, field.value, field.value_end)
            elif kind == OF_TIME:
                has_time = read_time(view, field.value, field.value_end, &timestamp)
            elif kind == OF_PENDING:
                pending = number(view, field.value, field.value_end)
            elif kind == OF_LAST:
                previous = number(view, field.value, field.value_end)
        if seen & OF_PACKED:
            if not seen & OF_LAST or previous != self.expected:
                return _GAP
            self.pending = pending
            return self._add_packed(view, body_start, end)
        if sequence < 0 or not has_time or subject == NULL:
            return _MALFORMED
        if seen & OF_LAST and previous != self.expected:
            return _GAP
        result = self._add_next(sequence, timestamp, view + subject.value, subject.value_end - subject.value, view, body_start, end)
        if result == _ADDED:
            self.pending = pending
        return result

    cdef int _add_packed(self, const unsigned char *view, Py_ssize_t at, Py_ssize_t end) except -100:
        """Add the messages that are packed in view[at:end]."""
        cdef PackedHead head
        cdef Py_ssize_t header, body
        cdef long long size
        cdef int result
        while at < end:
            if end - at < <Py_ssize_t> sizeof(PackedHead):
                return _MALFORMED
            memcpy(&head, view + at, sizeof(PackedHead))
            at += sizeof(PackedHead)
            size = <long long> head.subject_size + head.header_size + head.body_size
            if end - at < size or head.sequence > <unsigned long long> INT64_LIMIT:
                return _MALFORMED
            header = at + head.subject_size
            body = header + head.header_size
            self._found = 0
            if head.header_size and self.wanted & _HEADERS:
                self._read_fields(view, header, body)
            result = self._add_next(<long long> head.sequence, head.timestamp, view + at, head.subject_size, view, body, body + head.body_size)
            if result != _ADDED:
                return result
            at = body + head.body_size
        return _ADDED

    cdef int _add_next(self, long long sequence, long long timestamp, const unsigned char *subject, Py_ssize_t subject_size, const unsigned char *view, Py_ssize_t body_start, Py_ssize_t end) except -100:
        """Add a message of a direct get, unless one like it came before, or it goes beyond."""
        if sequence <= self.after:
            return _MALFORMED
        if sequence > self.last_wanted or timestamp >= self.time_end:
            return _BEYOND
        self.expected = self.after = sequence
        return self._add(sequence, timestamp, subject, subject_size, b"", view, body_start, end)

    cpdef int add_delivered(self, bytes subject, bytes reply, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -100:
        cdef const unsigned char *view
        cdef long long sequence, consumer, timestamp
        if header_start < 0 or body_start < header_start or end < body_start or end > len(data):
            raise IndexError(BAD_SLICE.decode())
        view = <const unsigned char *> PyBytes_AS_STRING(data)
        self._found = 0
        if body_start > header_start:
            if body_start - header_start < 8 or memcmp(view + header_start, VERSION, 8) != 0:
                return _MALFORMED
            if has_status(view, header_start, body_start):
                return _STATUS
        if not self._ack.read(reply):
            return _MALFORMED
        sequence = self._ack.stream_sequence
        consumer = self._ack.consumer_sequence
        timestamp = self._ack.timestamp_ns
        if self.ordered and consumer != self.expected + 1:
            return _GAP
        if sequence > self.last_wanted or timestamp >= self.time_end:
            return _BEYOND
        self.expected = consumer
        self.pending = self._ack.num_pending
        if body_start > header_start and self.wanted & _HEADERS:
            self._read_fields(view, header_start, body_start)
        return self._add(sequence, timestamp, <const unsigned char *> PyBytes_AS_STRING(subject), len(subject), reply, view, body_start, end)

    cdef int _add(self, long long sequence, long long timestamp, const unsigned char *subject, Py_ssize_t subject_size, bytes reply, const unsigned char *view, Py_ssize_t body_start, Py_ssize_t end) except -100:
        cdef Bytes *columns = self._columns
        cdef Field *field
        cdef Py_ssize_t i
        cdef Py_ssize_t size = subject_size + PyBytes_GET_SIZE(reply) + end - body_start
        for i in range(self._found if self.wanted & _HEADERS else 0):
            field = &self._fields[i]
            size += field.name_end - field.name + field.value_end - field.value
        if self.size + size > INT32_LIMIT:
            raise OverflowError("a batch holds at most 2 GiB: take it before adding more")
        push_int64(&columns[SEQUENCES], sequence)
        if self.wanted & _TIMESTAMP:
            push_int64(&columns[TIMESTAMPS], timestamp)
        if self.wanted & _SUBJECT:
            push_text(&columns[SUBJECT_OFFSETS], &columns[SUBJECTS], subject, subject_size)
        if self.wanted & _DATA:
            push(&columns[BODIES], view + body_start, end - body_start)
            push_offset(&columns[BODY_OFFSETS], columns[BODIES].size)
        if self.wanted & _SIZE:
            push_int64(&columns[SIZES], end - body_start)
        if self.wanted & _REPLY:
            push_text(&columns[REPLY_OFFSETS], &columns[REPLIES], <const unsigned char *> PyBytes_AS_STRING(reply), PyBytes_GET_SIZE(reply))
        if self.wanted & _HEADERS:
            self._add_headers(view)
        self.size += size
        self.rows += 1
        self.sequence = sequence
        self.timestamp = timestamp
        return _ADDED

    cdef void _add_headers(self, const unsigned char *view) except *:
        """One map: the values of a name that comes more than once stand together."""
        cdef Bytes *columns = self._columns
        cdef Field *field
        cdef Field *other
        cdef Py_ssize_t i, k, n
        for i in range(self._found):
            field = &self._fields[i]
            if field.used:
                continue
            n = field.name_end - field.name
            push_text(&columns[NAME_OFFSETS], &columns[NAMES], view + field.name, n)
            push_text(&columns[VALUE_OFFSETS], &columns[VALUES], view + field.value, field.value_end - field.value)
            for k in range(i + 1, self._found):
                other = &self._fields[k]
                if other.name_end - other.name == n and memcmp(view + other.name, view + field.name, n) == 0:
                    other.used = True
                    push_text(&columns[VALUE_OFFSETS], &columns[VALUES], view + other.value, other.value_end - other.value)
            push_offset(&columns[LIST_OFFSETS], columns[VALUE_OFFSETS].size // 4 - 1)
        push_offset(&columns[MAP_OFFSETS], columns[NAME_OFFSETS].size // 4 - 1)

    cdef bytes _bytes_of(self, int column):
        return PyBytes_FromStringAndSize(<char *> self._columns[column].data, self._columns[column].size)

    cpdef dict take(self):
        """The buffers of each wanted column; the next message begins a new batch."""
        cdef dict columns = {"sequence": (self._bytes_of(SEQUENCES),)}
        if self.wanted & _SUBJECT:
            columns["subject"] = (self._bytes_of(SUBJECT_OFFSETS), self._bytes_of(SUBJECTS))
        if self.wanted & _TIMESTAMP:
            columns["timestamp"] = (self._bytes_of(TIMESTAMPS),)
        if self.wanted & _HEADERS:
            columns["headers"] = (
                self._bytes_of(MAP_OFFSETS),
                self._bytes_of(NAME_OFFSETS),
                self._bytes_of(NAMES),
                self._bytes_of(LIST_OFFSETS),
                self._bytes_of(VALUE_OFFSETS),
                self._bytes_of(VALUES),
            )
        if self.wanted & _DATA:
            columns["data"] = (self._bytes_of(BODY_OFFSETS), self._bytes_of(BODIES))
        if self.wanted & _SIZE:
            columns["size"] = (self._bytes_of(SIZES),)
        if self.wanted & _REPLY:
            columns["reply"] = (self._bytes_of(REPLY_OFFSETS), self._bytes_of(REPLIES))
        self._clear()
        return columns
