"""CRC-32 without objects; `checksum.py` is the plain twin and says which library it comes from.

A call of that library through Python makes three objects, and takes 45 to 150 ns longer than the
16 ns in which ISA-L has gone through 200 bytes. Its Python module is a shared library that has ISA-L's
own function beside it, so that one is called.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

import ctypes

try:
    from isal import isal_zlib as _library
except ImportError:
    import zlib as _library

_through_python = _library.crc32

# ISA-L may leave something in the upper halves of the vector registers. On some processors every change
# between code that knows these and code that does not, such as this, then takes some 70 cycles: a tenth of
# a publish was one instruction behind a checksum, and another tenth the next one behind a copy.
cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    static int has_upper_halves(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx");
    }
    static inline void clear_upper_halves(void) {
        __asm__ volatile("vzeroupper" : : :
            "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
            "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    }
    #else
    static int has_upper_halves(void) { return 0; }
    static inline void clear_upper_halves(void) {}
    #endif
    """
    bint has_upper_halves() noexcept
    void clear_upper_halves() noexcept nogil

cdef bint _has_upper_halves = has_upper_halves()

cdef enum:
    LONG = 256 * 1024  # bytes whose checksum takes so long that other threads may run meanwhile

ctypedef uint32_t (*Function)(uint32_t seed, const unsigned char *at, uint64_t size) noexcept nogil


cdef Function find_function() except? NULL:
    """ISA-L's function; NULL where it cannot be reached, or is not what it is taken for."""
    try:
        found = ctypes.CDLL(_library.__file__).crc32_gzip_refl
    except (AttributeError, OSError):
        return NULL
    found.argtypes = (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64)
    found.restype = ctypes.c_uint32
    known = bytes(range(256)) * 5  # long enough for each part of its code
    for size in (0, 9, 100, 300, len(known)):
        first, rest = known[:size], known[size:]
        if found(found(7, first, size), rest, len(rest)) != _through_python(known, 7):
            return NULL
    return <Function> <uintptr_t> ctypes.cast(found, ctypes.c_void_p).value


cdef Function _function = find_function()


@cython.final
@cython.freelist(2)
@cython.no_gc
cdef class RawBytes:
    """Bytes by their address, for a function that takes a buffer."""

    cdef const unsigned char *at
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *> self.at, self.size, 1, flags)


cdef uint32_t crc32_at(const unsigned char *at, Py_ssize_t size, uint32_t seed) except? 0:
    cdef uint32_t crc
    cdef RawBytes raw
    if _function is NULL:
        raw = RawBytes.__new__(RawBytes)
        raw.at = at
        raw.size = size
        crc = _through_python(raw, seed)
    elif size < LONG:
        crc = _function(seed, at, size)
    else:
        with nogil:
            crc = _function(seed, at, size)
    if _has_upper_halves:
        clear_upper_halves()
    return crc


cpdef uint32_t crc32(object data, uint32_t seed=0) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return crc32_at(<const unsigned char *> view.buf, view.len, seed)
    finally:
        PyBuffer_Release(&view)
