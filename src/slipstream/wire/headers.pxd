import cython


@cython.locals(view="const unsigned char *", key="const unsigned char *", i=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, begin=Py_ssize_t, stop=Py_ssize_t)
cpdef bytes find(bytes data, Py_ssize_t start, Py_ssize_t end, bytes name)

@cython.locals(view="const unsigned char *", key="const unsigned char *", i=Py_ssize_t, k=Py_ssize_t, n=Py_ssize_t, found=Py_ssize_t)
cpdef Py_ssize_t count_prefix(bytes data, Py_ssize_t start, Py_ssize_t end, bytes prefix) except -1
