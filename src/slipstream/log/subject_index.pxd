from slipstream.log.subject_shape cimport Shape
from slipstream.wire.patterns cimport PatternTrie


cdef struct Slot:
    unsigned int hash
    unsigned int holder  # its id plus one; 0 is an empty slot


cdef struct Subject:
    char *text  # NULL: nobody has this id
    unsigned long long first
    unsigned long long last
    unsigned int count
    unsigned int birth
    unsigned short size


cdef class SubjectIndex:
    cdef Py_ssize_t _slots
    cdef Slot *_table
    cdef Py_ssize_t _ids
    cdef Py_ssize_t _capacity
    cdef Subject *_subjects
    cdef Py_ssize_t _latest
    cdef unsigned int *_free
    cdef Py_ssize_t _free_count
    cdef Py_ssize_t _free_capacity
    cdef unsigned int _birth
    cdef unsigned long long _key
    cdef dict _shapes
    cdef readonly Py_ssize_t live

    cdef unsigned int _hash(self, const char *text, Py_ssize_t size) noexcept
    cdef void _grow_ids(self) except *
    cdef void _grow_table(self, Py_ssize_t slots) except *
    cdef void _make_room(self, Py_ssize_t subjects) except *
    cdef void _load(self, unsigned int id, unsigned int count, unsigned long long first, unsigned long long last) noexcept
    cdef Py_ssize_t _slot_of(self, const char *text, Py_ssize_t size, unsigned int hash) noexcept
    cdef void _check(self, unsigned int id) except *
    cdef void _add_to_shapes(self, unsigned int id) except *
    cdef Shape _shape_for(self, bytes pattern)
    cdef void _forget(self, unsigned int id) except *
    cdef bint _is_latest(self, const char *text, Py_ssize_t size) noexcept
    cdef long long _intern(self, const char *text, Py_ssize_t size) except -1
    cdef long long _intern_hashed(self, const char *text, Py_ssize_t size, unsigned int hash) except -1
    cpdef long long intern(self, bytes subject) except -1
    cpdef long long find(self, bytes subject) except -2
    cpdef bytes subject(self, unsigned int id)
    cpdef unsigned int count(self, unsigned int id) except? 0xFFFFFFFE
    cpdef unsigned long long first(self, unsigned int id) except? 0xFFFFFFFE
    cpdef unsigned long long last(self, unsigned int id) except? 0xFFFFFFFE
    cpdef void set_first(self, unsigned int id, unsigned long long seq) except *
    cpdef void set_last(self, unsigned int id, unsigned long long seq) except *
    cpdef void added(self, unsigned int id, unsigned long long seq) except *
    cpdef list matching(self, bytes pattern)
    cpdef void removed(self, unsigned int id, unsigned long long seq) except *


cdef class SubjectFilter:
    cdef SubjectIndex _index
    cdef readonly tuple patterns
    cdef readonly bytes literal
    cdef public long long only
    cdef bint _matches_many
    cdef PatternTrie _trie
    cdef unsigned char *_verdicts
    cdef unsigned int *_seen
    cdef Py_ssize_t _size

    cpdef void refresh(self) except *
    cpdef long long at_or_after(self, long long seq) except -2
    cpdef bint accepts(self, unsigned int id) except -1
    cdef bint _decide(self, unsigned int id) except -1
