import cython
cimport slipstream.wire.ascii as char
cimport slipstream.wire.operations as operations


cdef class Frames:
    cdef public bytes data
    cdef public bytes subject
    cdef public bytes reply
    cdef public Py_ssize_t header_start
    cdef public Py_ssize_t body_start
    cdef public Py_ssize_t end
    cdef public Py_ssize_t args_start
    cdef public Py_ssize_t args_end
    cdef Py_ssize_t _at
    cdef list _chunks
    cdef Py_ssize_t _have
    cdef Py_ssize_t _need
    cdef Py_ssize_t _line_max
    cdef Py_ssize_t[operations.WORDS_MAX] _starts
    cdef Py_ssize_t[operations.WORDS_MAX] _ends
    cdef Py_ssize_t _line_end

    cpdef void feed(self, bytes data) except *
    cpdef Py_ssize_t missing(self) except -1
    cpdef bytes give_up(self)
    cpdef bytes rest(self)
    cpdef list args(self)
    cpdef bytes argument(self)
    cdef int _wait(self, Py_ssize_t need) except -1
    cdef int _wait_for_line(self, Py_ssize_t most) except -1
    cdef int _wait_with(self, bytes rest, Py_ssize_t need) except -1
    @cython.locals(view="const unsigned char *", letters="const unsigned char *", n=Py_ssize_t, k=Py_ssize_t, c=int)
    cdef int _spells(self, Py_ssize_t i, bytes name) except -100
    @cython.locals(view="const unsigned char *", i=Py_ssize_t, n=Py_ssize_t, word=Py_ssize_t, end=Py_ssize_t, words=int)
    cdef int _split(self, Py_ssize_t start) except -100
    @cython.locals(view="const unsigned char *", i=Py_ssize_t, end=Py_ssize_t, value="long long")
    cdef long long _number(self, int word, int digits_max) except -100
    @cython.locals(view="const unsigned char *")
    cdef bytes _word(self, int word)
    @cython.locals(view="const unsigned char *", i=Py_ssize_t, there=Py_ssize_t)
    cdef int _payload(self, Py_ssize_t header, Py_ssize_t total) except -100
    @cython.locals(view="const unsigned char *", known="const unsigned char *", size=Py_ssize_t, i=Py_ssize_t)
    cdef void _take_subject(self, Py_ssize_t start, Py_ssize_t end) except *
