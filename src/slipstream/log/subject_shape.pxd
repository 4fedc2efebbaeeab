cdef class Shape:
    cdef unsigned int _places
    cdef Py_ssize_t _tokens
    cdef bint _open_end
    cdef unsigned long long _key
    cdef unsigned int *_buckets
    cdef Py_ssize_t _bucket_count
    cdef Py_ssize_t _members
    cdef unsigned int *_hashes
    cdef unsigned int *_next
    cdef unsigned int *_previous
    cdef Py_ssize_t _capacity

    cdef bint _hash(self, bytes text, unsigned int *hash)
    cdef void _link(self, unsigned int id) except *
    cdef void _grow_ids(self, Py_ssize_t wanted) except *
    cdef void _grow_buckets(self) except *
    cpdef void add(self, unsigned int id, bytes subject) except *
    cpdef void remove(self, unsigned int id) except *
    cpdef list candidates(self, bytes pattern)
