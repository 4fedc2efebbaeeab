from libc.stdint cimport uint32_t

# The bytes at an address, which follow others of which `seed` is the checksum.
cdef uint32_t crc32_at(const unsigned char *at, Py_ssize_t size, uint32_t seed) except? 0
cpdef uint32_t crc32(object data, uint32_t seed=*) except? 0
