import cython

from slipstream.log.base cimport Log


@cython.locals(view="const unsigned char *", seen=int, bit=int, expected="long long", of=bytes, i=Py_ssize_t, k=Py_ssize_t, colon=Py_ssize_t, begin=Py_ssize_t, stop=Py_ssize_t, name_size=Py_ssize_t, id="long long")
cpdef int all_hold(bytes name, Log log, bytes subject, bytes data, Py_ssize_t start, Py_ssize_t end) except -1
