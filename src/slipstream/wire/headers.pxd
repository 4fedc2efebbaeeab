import cython
cimport slipstream.wire.ascii as char


@cython.locals(view="const unsigned char *")
cpdef Py_ssize_t next_field(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
@cython.locals(view="const unsigned char *")
cpdef Py_ssize_t value_start(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
@cython.locals(view="const unsigned char *")
cpdef Py_ssize_t value_end(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
@cython.locals(view="const unsigned char *", key="const unsigned char *", k=Py_ssize_t, n=Py_ssize_t)
cpdef bint begins_with(bytes data, Py_ssize_t at, bytes name) except -1

@cython.locals(view="const unsigned char *", at=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t)
cpdef bytes find(bytes data, Py_ssize_t start, Py_ssize_t end, bytes name)
@cython.locals(view="const unsigned char *", at=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t)
cpdef bytes find_last(bytes data, Py_ssize_t start, Py_ssize_t end, bytes name)
@cython.locals(at=Py_ssize_t, found=Py_ssize_t)
cpdef Py_ssize_t count_prefix(bytes data, Py_ssize_t start, Py_ssize_t end, bytes prefix) except -1
@cython.locals(at=Py_ssize_t, end=Py_ssize_t, stop=Py_ssize_t, colon=Py_ssize_t)
cpdef list fields(bytes block)
