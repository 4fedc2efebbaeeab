from libc.stdlib cimport realloc


cdef inline void *resized(void *memory, Py_ssize_t size) except NULL:
    """`memory` with another size, what was in it included; raises MemoryError."""
    cdef void *grown = realloc(memory, size)
    if grown == NULL:
        raise MemoryError()
    return grown
