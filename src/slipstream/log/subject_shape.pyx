"""A shape on raw memory; `subject_shape.py` is the plain twin and says what it means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from slipstream.log.keyed_hash cimport folded, with_text
from slipstream.log.memory cimport resized

from slipstream.log.hash_key import new_key

cdef Py_ssize_t LONGEST = 32
cdef Py_ssize_t FIRST_BUCKETS = 64

# Members of a bucket are linked through `_next` and `_previous` by id. Links are ids plus one, so
# that 0 is the end; the first member's `_previous` is HEAD, and 0 there says: not a member.
cdef unsigned int HEAD = 0xFFFFFFFF


cdef class Shape:
    def __cinit__(self):
        self._buckets = NULL
        self._hashes = NULL
        self._next = NULL
        self._previous = NULL

    def __init__(self, unsigned int places, Py_ssize_t tokens, bint open_end):
        self._places = places
        self._tokens = tokens
        self._open_end = open_end
        self._key = new_key()

    def __dealloc__(self):
        free(self._buckets)
        free(self._hashes)
        free(self._next)
        free(self._previous)

    cdef bint _hash(self, bytes text, unsigned int *hash):
        """Of the tokens in the shape's places; whether a pattern of this shape can match `text`."""
        cdef const char *at = PyBytes_AS_STRING(text)
        cdef const char *end = at + PyBytes_GET_SIZE(text)
        cdef const char *start
        cdef unsigned long long h = 1
        cdef Py_ssize_t token = 0
        while True:
            start = at
            while at < end and at[0] != c".":
                at += 1
            if token < LONGEST and self._places >> token & 1:
                h = with_text(h, self._key, start, at - start)
            token += 1
            if at == end:
                break
            at += 1
        hash[0] = folded(h, self._key)
        return token == self._tokens or (self._open_end and token > self._tokens)

    cdef void _grow_ids(self, Py_ssize_t wanted) except *:
        cdef Py_ssize_t n = wanted + (wanted >> 3) + 8
        self._hashes = <unsigned int *> resized(self._hashes, n * sizeof(unsigned int))
        self._next = <unsigned int *> resized(self._next, n * sizeof(unsigned int))
        self._previous = <unsigned int *> resized(self._previous, n * sizeof(unsigned int))
        memset(self._previous + self._capacity, 0, (n - self._capacity) * sizeof(unsigned int))
        self._capacity = n

    cdef void _grow_buckets(self) except *:
        cdef Py_ssize_t n = self._bucket_count * 2 if self._bucket_count else FIRST_BUCKETS
        cdef unsigned int *buckets = <unsigned int *> calloc(n, sizeof(unsigned int))
        cdef Py_ssize_t id
        if buckets == NULL:
            raise MemoryError()
        free(self._buckets)
        self._buckets = buckets
        self._bucket_count = n
        for id in range(self._capacity):
            if self._previous[id]:
                self._link(<unsigned int> id)

    cdef void _link(self, unsigned int id) except *:
        cdef unsigned int *bucket = &self._buckets[self._hashes[id] & (self._bucket_count - 1)]
        self._next[id] = bucket[0]
        if bucket[0]:
            self._previous[bucket[0] - 1] = id + 1
        self._previous[id] = HEAD
        bucket[0] = id + 1

    cpdef void add(self, unsigned int id, bytes subject) except *:
        cdef unsigned int hash = 0
        if not self._hash(subject, &hash):
            return
        if id >= self._capacity:
            self._grow_ids(id + 1)
        if self._members == self._bucket_count:
            self._grow_buckets()
        self._hashes[id] = hash
        self._link(id)
        self._members += 1

    cpdef void remove(self, unsigned int id) except *:
        cdef unsigned int before
        cdef unsigned int after
        if id >= self._capacity or not self._previous[id]:
            return
        before = self._previous[id]
        after = self._next[id]
        if before == HEAD:
            self._buckets[self._hashes[id] & (self._bucket_count - 1)] = after
        else:
            self._next[before - 1] = after
        if after:
            self._previous[after - 1] = before
        self._previous[id] = 0
        self._members -= 1

    cpdef list candidates(self, bytes pattern):
        cdef list found = []
        cdef unsigned int hash = 0
        cdef unsigned int at
        if self._members == 0:
            return found
        self._hash(pattern, &hash)
        at = self._buckets[hash & (self._bucket_count - 1)]
        while at:
            if self._hashes[at - 1] == hash:
                found.append(at - 1)
            at = self._next[at - 1]
        return found


def form_of(bytes pattern):
    cdef list tokens = pattern.split(b".")
    if len(tokens) > LONGEST:
        return None
    places = 0
    for i, token in enumerate(tokens):
        if token != b"*" and token != b">":
            places |= 1 << i
    return (places, len(tokens), tokens[-1] == b">") if places else None
