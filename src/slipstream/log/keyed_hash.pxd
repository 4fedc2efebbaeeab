# Hashes of texts with a secret key, for tables that strangers fill.
#
# A text is a polynomial over the numbers below 2**61 - 1, its coefficients words of seven bytes, and
# its hash the value at the key. Two texts have few keys at which their values are the same, whatever
# they are. So nobody who does not know the key can make texts that collide, and a word costs one
# multiplication.

from libc.string cimport memcpy

cdef extern from *:
    """
    typedef unsigned __int128 keyed_hash_wide;
    """
    ctypedef unsigned long long wide "keyed_hash_wide"


cdef inline unsigned long long with_word(unsigned long long h, unsigned long long key, unsigned long long word) noexcept nogil:
    """`h`, and one word more, which is less than 2**58."""
    cdef wide product = <wide> h * key + word
    h = (<unsigned long long> product & 0x1FFFFFFFFFFFFFFFULL) + <unsigned long long> (product >> 61)
    return h - 0x1FFFFFFFFFFFFFFFULL if h >= 0x1FFFFFFFFFFFFFFFULL else h


cdef inline unsigned long long with_text(unsigned long long h, unsigned long long key, const char *text, Py_ssize_t size) noexcept nogil:
    """`h`, and a text more: its words, and then its size, which no word looks like."""
    cdef unsigned long long word
    cdef Py_ssize_t left = size
    while left >= 8:  # a word is read as eight bytes, and seven of them are used
        memcpy(&word, text, 8)
        h = with_word(h, key, word & 0xFFFFFFFFFFFFFFULL)
        text += 7
        left -= 7
    word = 0
    memcpy(&word, text, left)
    h = with_word(h, key, word)
    return with_word(h, key, 0x100000000000000ULL | <unsigned long long> size)


cdef inline unsigned int folded(unsigned long long h, unsigned long long key) noexcept nogil:
    """The 32 bits that a table uses."""
    return <unsigned int> ((h * (key | 1)) >> 32)
