"""One block of S2 on raw memory; `s2_block.py` is the plain twin and says what the bytes mean."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

from slipstream.errors import CorruptionError

_WHAT = "the archive is damaged: a block cannot be decompressed"

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>

    static size_t slip_s2_number(const uint8_t *at, int width) {
        size_t value = 0;
        for (int i = 0; i < width; i++) value |= (size_t) at[i] << (8 * i);
        return value;
    }

    /* Decompress what follows the size; 0, or -1 if it is damaged. Both ends are checked before
       anything is read or written. */
    static int slip_s2_decode(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t size) {
        static const size_t more[3] = {4, 1 << 8, 1 << 16};
        size_t done = 0;
        size_t offset = 0;
        while (at < end) {
            uint8_t tag = *at++;
            size_t length = (tag >> 2) + 1;
            int width;
            switch (tag & 3) {
            case 0:
                if (length > 60) {
                    width = (int) length - 60;
                    if (end - at < width) return -1;
                    length = slip_s2_number(at, width) + 1;
                    at += width;
                }
                if (length > (size_t) (end - at) || length > size - done) return -1;
                /* A size that the compiler knows is no call; what is too much is overwritten. */
                if (length <= 16 && end - at >= 16 && size - done >= 16) memcpy(out + done, at, 16);
                else memcpy(out + done, at, length);
                at += length;
                done += length;
                continue;
            case 1: {
                if (at == end) return -1;
                size_t found = ((size_t) (tag & 0xE0) << 3) | *at++;
                length = (tag >> 2) & 7;
                if (found) offset = found;
                else if (length >= 5) {
                    width = (int) length - 4;
                    if (end - at < width) return -1;
                    length = slip_s2_number(at, width) + more[width - 1];
                    at += width;
                }
                length += 4;
                break;
            }
            default:
                width = (tag & 3) == 2 ? 2 : 4;
                if (end - at < width) return -1;
                offset = slip_s2_number(at, width);
                at += width;
            }
            if (offset == 0 || offset > done || length > size - done) return -1;
            if (length <= 16 && offset >= 16 && size - done >= 16)
                memcpy(out + done, out + done - offset, 16);
            else if (offset >= length) memcpy(out + done, out + done - offset, length);
            else for (size_t i = 0; i < length; i++) out[done + i] = out[done + i - offset];
            done += length;
        }
        return done == size ? 0 : -1;
    }

    #define SLIP_S2_TABLE_BITS 15

    static inline uint64_t slip_s2_word(const uint8_t *at) {
        uint64_t word;
        memcpy(&word, at, 8);
        return word;
    }

    /* Of the first six bytes. */
    static inline uint32_t slip_s2_hash(uint64_t word) {
        return (uint32_t) (((word << 16) * 227718039650203ull) >> (64 - SLIP_S2_TABLE_BITS));
    }

    static uint8_t *slip_s2_put_literal(uint8_t *out, const uint8_t *at, size_t length) {
        size_t less = length - 1;
        if (!length) return out;
        if (less < 60) *out++ = (uint8_t) (less << 2);
        else if (less < 256) { *out++ = 60 << 2; *out++ = (uint8_t) less; }
        else if (less < 65536) {
            *out++ = 61 << 2; *out++ = (uint8_t) less; *out++ = (uint8_t) (less >> 8);
        } else {
            *out++ = 62 << 2; *out++ = (uint8_t) less; *out++ = (uint8_t) (less >> 8);
            *out++ = (uint8_t) (less >> 16);
        }
        memcpy(out, at, length);
        return out + length;
    }

    /* What of a copy is longer than one element may be repeats its offset. */
    static uint8_t *slip_s2_put_copy(uint8_t *out, size_t offset, size_t length) {
        size_t first = length <= 64 ? length : length < 68 ? 60 : 64;
        if (offset < 2048 && first < 12) {
            *out++ = (uint8_t) (((offset >> 8) << 5) | ((first - 4) << 2) | 1);
            *out++ = (uint8_t) offset;
        } else if (offset < 65536) {
            *out++ = (uint8_t) (((first - 1) << 2) | 2);
            *out++ = (uint8_t) offset; *out++ = (uint8_t) (offset >> 8);
        } else {
            *out++ = (uint8_t) (((first - 1) << 2) | 3);
            for (int i = 0; i < 4; i++) *out++ = (uint8_t) (offset >> (8 * i));
        }
        length -= first;
        if (!length) return out;
        length -= 4;
        if (length < 5) { *out++ = (uint8_t) (length << 2 | 1); *out++ = 0; }
        else if (length < 4 + 256) {
            *out++ = 5 << 2 | 1; *out++ = 0; *out++ = (uint8_t) (length - 4);
        } else if (length < 256 + 65536) {
            length -= 256;
            *out++ = 6 << 2 | 1; *out++ = 0;
            *out++ = (uint8_t) length; *out++ = (uint8_t) (length >> 8);
        } else {
            length -= 65536;
            *out++ = 7 << 2 | 1; *out++ = 0;
            for (int i = 0; i < 3; i++) *out++ = (uint8_t) (length >> (8 * i));
        }
        return out;
    }

    /* Compress `size` bytes (at most 16 MB) behind their size, into as much room; the size of the
       result, or 0 if it is no smaller. */
    static size_t slip_s2_encode(const uint8_t *data, size_t size, uint8_t *out) {
        static const size_t margin = 16;
        uint32_t table[1 << SLIP_S2_TABLE_BITS];
        const uint8_t *begin = out;
        const uint8_t *limit = out + size;
        size_t emitted = 0, at = 1, left = size;
        if (size < 64) return 0;
        for (; left > 127; left >>= 7) *out++ = (uint8_t) (left | 128);
        *out++ = (uint8_t) left;
        memset(table, 0, sizeof table);
        size_t last = size - margin;
        while (at < last) {
            size_t tries = 32, found, length;
            for (;;) {
                uint64_t word = slip_s2_word(data + at);
                uint32_t *entry = table + slip_s2_hash(word);
                found = *entry;
                *entry = (uint32_t) at;
                if (found < at && (uint32_t) slip_s2_word(data + found) == (uint32_t) word) break;
                at += tries++ >> 5;
                if (at >= last) goto rest;
            }
            while (at > emitted && found > 0 && data[at - 1] == data[found - 1]) { at--; found--; }
            if ((size_t) (limit - out) < at - emitted + 2 * margin) return 0;
            out = slip_s2_put_literal(out, data + emitted, at - emitted);
            for (length = 4; at + length + 8 <= size; length += 8) {
                uint64_t differ = slip_s2_word(data + at + length)
                    ^ slip_s2_word(data + found + length);
                if (differ) {
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                    length += __builtin_ctzll(differ) >> 3;
    #else
                    while (data[at + length] == data[found + length]) length++;
    #endif
                    break;
                }
            }
            out = slip_s2_put_copy(out, at - found, length);
            at += length;
            emitted = at;
            if (at < last) table[slip_s2_hash(slip_s2_word(data + at - 2))] = (uint32_t) (at - 2);
        }
    rest:
        if ((size_t) (limit - out) < size - emitted + 2 * margin) return 0;
        out = slip_s2_put_literal(out, data + emitted, size - emitted);
        return (size_t) (out - begin);
    }
    """
    size_t slip_s2_encode(const uint8_t *data, size_t size, uint8_t *out) nogil
    int slip_s2_decode(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t size) nogil


def decode_block(bytes data not None, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size_max):
    cdef const uint8_t *view = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t at = start
    cdef unsigned long long size = 0
    cdef bytes out
    cdef uint8_t *into
    cdef int failed
    cdef int i
    if not 0 <= start <= end <= PyBytes_GET_SIZE(data):
        raise IndexError("a block outside of the data")
    for i in range(5):
        if at >= end:
            raise CorruptionError(_WHAT)
        size |= <unsigned long long> (view[at] & 0x7F) << (7 * i)
        at += 1
        if view[at - 1] < 0x80:
            break
    else:
        raise CorruptionError(_WHAT)
    if size > <unsigned long long> max(size_max, 0):
        raise CorruptionError(_WHAT)
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> size)
    into = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        failed = slip_s2_decode(view + at, view + end, into, size)
    if failed:
        raise CorruptionError(_WHAT)
    return out


def encode_block(bytes data not None):
    cdef const uint8_t *view = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    cdef bytes out
    cdef uint8_t *into
    cdef size_t found
    if size >= 1 << 24:
        raise ValueError("a block has less than 16 MB")
    out = PyBytes_FromStringAndSize(NULL, size)
    into = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        found = slip_s2_encode(view, size, into)
    return out[:found]
