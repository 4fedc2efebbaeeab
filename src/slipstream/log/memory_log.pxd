import cython

from slipstream.log.base cimport Block, Log
from slipstream.log.durability cimport SyncBatch
from slipstream.log.record cimport Record

cdef int BLOCK_MESSAGES
cdef int MESSAGE
cdef unsigned int GONE


cdef class MemoryBlock(Block):
    cdef public list parts


cdef class MemoryLog(Log):
    cpdef unsigned long long size_of(self, Py_ssize_t subject_size, Py_ssize_t header_size, Py_ssize_t body_size)
    @cython.locals(block=MemoryBlock, id="unsigned int", size="unsigned long long", seq="unsigned long long")
    cpdef unsigned long long append(self, bytes subject, bytes data, Py_ssize_t header_start, Py_ssize_t body_start, Py_ssize_t end, long long ts) except 0
    @cython.locals(block=MemoryBlock)
    cpdef unsigned long long skip(self, long long ts) except 0
    cdef MemoryBlock _active(self)
    cpdef object prepare_sync(self, SyncBatch instead_of=*)
    cpdef void finish_sync(self, SyncBatch batch) except *
    @cython.locals(memory=MemoryBlock, part=tuple, data=bytes)
    cpdef void _fill(self, Block block, Py_ssize_t i, Record record) except *
    cpdef void _forgotten(self, Block block, Py_ssize_t i, bint erase) except *
    cpdef void _forgotten_run(self, Block block, Py_ssize_t i, Py_ssize_t count, bint is_front) except *
