import cython


cdef class _Node:
    cdef public dict children
    cdef public _Node star
    cdef public list tail
    cdef public list values


cdef class PatternTrie:
    cdef _Node _root
    cdef public Py_ssize_t size
    cdef public bint any_last_token
    cdef public int fixed_tokens

    @cython.locals(node=_Node, child=_Node)
    cpdef int insert(self, bytes pattern, object value) except -1

    @cython.locals(node=_Node)
    cpdef bint remove(self, bytes pattern, object value) except -1

    @cython.locals(active=list, following=list, found=list, tokens=list, token=bytes, node=_Node, child=_Node, depth=int, n=int, open_node=bint)
    cpdef list match(self, bytes subject)

    cpdef list overlapping(self, bytes pattern)
