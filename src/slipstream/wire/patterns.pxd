import cython


cdef class _Node:
    cdef dict children
    cdef _Node star
    cdef list tail
    cdef list values

    cdef bint is_empty(self)


cdef class PatternTrie:
    cdef _Node _root
    cdef public Py_ssize_t size
    cdef public bint any_last_token
    cdef public int fixed_tokens

    @cython.locals(node=_Node, child=_Node)
    cpdef int insert(self, bytes pattern, object value) except -1

    @cython.locals(node=_Node, child=_Node, tokens=list, path=list, bucket=list, i=Py_ssize_t)
    cpdef bint remove(self, bytes pattern, object value) except -1

    @cython.locals(found=list, tokens=list, todo=list, depths=list, node=_Node, child=_Node, depth=Py_ssize_t, n=Py_ssize_t, decided=Py_ssize_t, any_last=bint)
    cpdef list match(self, bytes subject)

    @cython.locals(found=list, tokens=list, todo=list, depths=list, below=list, node=_Node, child=_Node, depth=Py_ssize_t, token=bytes)
    cpdef list overlapping(self, bytes pattern)


@cython.locals(node=_Node, above=_Node, depth=Py_ssize_t)
cdef _prune(list path, list tokens)
