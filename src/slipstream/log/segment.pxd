import cython

from slipstream.log.base cimport Block
from slipstream.log.columns cimport Column


cdef class Segment(Block):
    cdef public Column offsets
    cdef public Py_ssize_t written
    cdef public Py_ssize_t records_end
    cdef public Py_ssize_t referred
    cdef public object copy
    cdef public unsigned int salt
    cdef public int pins
    cdef public bint closed
    cdef public bint footed
    cdef public str path
    cdef public int format
    cdef public bint rewritten
    cdef public Py_ssize_t places
    cdef public bytearray dead
    cdef public bytearray removed_ranges
    cdef public unsigned long long front
    cdef public unsigned long long last_seq
    cdef public unsigned long long as_of
    cdef public bint unwanted
    cdef public unsigned long long compact_below
    cdef public object file
    cdef public tuple offset_samples
    cdef public list chunks
    cdef public unsigned int checksum

    cpdef void bury(self, Py_ssize_t i) except *
    cpdef void pin(self) except *
    cpdef void unpin(self) except *
