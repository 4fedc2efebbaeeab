import cython
cimport slipstream.wire.ascii as char


@cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, start=Py_ssize_t, c=int)
cpdef bint is_pattern(bytes subject)

@cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, start=Py_ssize_t, c=int)
cpdef bint is_literal(bytes subject)

@cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t)
cpdef bint has_wildcard(bytes subject)

@cython.locals(p="const unsigned char *", s="const unsigned char *", i=Py_ssize_t, j=Py_ssize_t, n=Py_ssize_t, m=Py_ssize_t)
cpdef bint matches(bytes pattern, bytes subject)
