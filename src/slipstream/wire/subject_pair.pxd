cdef class SubjectPair:
    cdef public bytes theirs
    cdef public bytes ours
    cdef list _their_tokens
    cdef list _our_tokens
    cdef bint _is_literal
    cdef list _moved
    cdef bytes _their_head
    cdef bytes _our_head
    cdef bint _has_heads

    cpdef bytes to_ours(self, bytes subject)
    cpdef bytes to_theirs(self, bytes subject)
