import cython
cimport slipstream.wire.ascii as char


cdef class _Node:
    cdef dict children
    cdef _Node star
    cdef object tail
    cdef object values

    cdef bint is_empty(self)


cdef class PatternTrie:
    cdef _Node _root
    cdef public Py_ssize_t size
    cdef public bint any_last_token
    cdef public int fixed_tokens
    cdef public long long visited

    @cython.locals(node=_Node, child=_Node)
    cpdef void insert(self, bytes pattern, object value) except *

    @cython.locals(node=_Node, child=_Node, tokens=list, path=list)
    cpdef bint remove(self, bytes pattern, object value) except -1

    @cython.locals(found=list, view="const unsigned char *", size=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, todo=list, node=_Node, child=_Node, depth=Py_ssize_t, n=Py_ssize_t, decided=Py_ssize_t, any_last=bint)
    cpdef list match(self, bytes subject)

    @cython.locals(node=_Node, child=_Node)
    cpdef list items(self)

    @cython.locals(found=list, tokens=list, todo=list, depths=list, below=list, node=_Node, child=_Node, depth=Py_ssize_t, token=bytes)
    cpdef list overlapping(self, bytes pattern)

    @cython.locals(tokens=list, todo=list, depths=list, node=_Node, child=_Node, n=Py_ssize_t, depth=Py_ssize_t, below=Py_ssize_t, token=bytes)
    cpdef object find_overlap(self, bytes pattern, object but=*)

    @cython.locals(tokens=list, todo=list, depths=list, node=_Node, child=_Node, n=Py_ssize_t, depth=Py_ssize_t, token=bytes)
    cpdef object find_cover(self, bytes pattern, object but=*)


@cython.locals(view="const unsigned char *", i=Py_ssize_t, tokens=Py_ssize_t, before=int)
cdef Py_ssize_t _count_tokens(bytes subject) except -1
@cython.locals(node=_Node, above=_Node, depth=Py_ssize_t)
cdef _prune(list path, list tokens)
@cython.locals(todo=list, node=_Node)
cdef void _take_apart(_Node root) except *
cdef object _with(object bucket, object value)
@cython.locals(i=Py_ssize_t)
cdef bint _take(object bucket, object value) except -1
cdef void _gather(list found, object bucket) except *
cdef object _other(object bucket, object but)
