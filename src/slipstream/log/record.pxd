from slipstream.log.columns cimport Column
from slipstream.log.subject_index cimport SubjectFilter, SubjectIndex
from slipstream.wire.buffer cimport OutBuffer

cpdef enum:
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

cdef enum:
    KIND_BITS = 0x0F  # of a kind with its flags
    MAGIC_AT = 8  # in a record
    HEADER_SIZE_BYTES = 2


cdef class Record:
    cdef public unsigned long long seq
    cdef public long long ts
    cdef public bytes subject
    cdef public bytes data
    cdef public Py_ssize_t header_start
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t end
    cdef public int kind
    cdef public bint packed

    cpdef bytes header(self)
    cpdef bytes body(self)


cdef class RunCounts:
    cdef readonly unsigned long long messages
    cdef readonly unsigned long long with_header
    cdef readonly unsigned long long text_bytes
    cdef readonly long long first_ts
    cdef readonly long long last_ts
    cdef readonly Py_ssize_t committed
    cdef readonly Py_ssize_t durable
    cdef readonly bint groups

    cpdef void add(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size, long long ts) except *


cdef class Portion:
    cdef public long long messages
    cdef public long long bytes
    cdef public Py_ssize_t size_max
    cdef public Py_ssize_t large
    cdef public unsigned long long end_seq
    cdef public unsigned long long last_seq


cpdef Py_ssize_t encode(OutBuffer out, int kind, unsigned int salt, unsigned int place, long long ts, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end) except -1
cpdef Py_ssize_t encode_number(OutBuffer out, int kind, unsigned int salt, unsigned int place, long long ts, unsigned long long value, Py_ssize_t size) except -1
cpdef Py_ssize_t decode(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long base, Record record) except -1
cpdef Py_ssize_t peek(bytes data, Py_ssize_t at, unsigned long long base, Record record) except -1
cpdef Py_ssize_t length_at(bytes data, Py_ssize_t at) except -1
cpdef Py_ssize_t resync(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2
cpdef Py_ssize_t next_whole(bytes data, Py_ssize_t at, unsigned int salt, unsigned long long place) except -2
cpdef Py_ssize_t read_run(bytes data, Py_ssize_t at, unsigned int salt, SubjectIndex subjects, unsigned long long base, Column ids, Column offsets, RunCounts counts) except -1
cpdef void copy_message(Record record, OutBuffer out) except *
cpdef Py_ssize_t copy_run(bytes data, Py_ssize_t start, unsigned int salt, unsigned long long base, Column ids, Column offsets, Py_ssize_t i, SubjectFilter matching, Portion portion, OutBuffer out) except -1
