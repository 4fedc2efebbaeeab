from cpython.buffer cimport Py_buffer


cdef class Cells:
    cdef Py_buffer _offsets_view
    cdef Py_buffer _data_view
    cdef const int *offsets
    cdef const unsigned char *data

    cdef bytes at(self, Py_ssize_t row)


cdef class RowBlock:
    cdef readonly Py_ssize_t count
    cdef readonly bytearray states
    cdef readonly bytes digests
    cdef readonly unsigned long long sum_low
    cdef readonly unsigned long long sum_high
    cdef public long long first_token
    cdef readonly Py_ssize_t left
    cdef readonly Py_ssize_t in_flight
    cdef readonly Py_ssize_t next_row
    cdef readonly unsigned long long sequence
    cdef readonly long long payload
    cdef bytes _subject
    cdef Cells _subjects
    cdef Cells _bodies
    cdef Cells _extras
    cdef Cells _ids
    cdef unsigned char *_states

    cpdef bytes subject(self, Py_ssize_t row)
    cpdef bytes body(self, Py_ssize_t row)
    cpdef bytes extra(self, Py_ssize_t row)
    cpdef bytes message_id(self, Py_ssize_t row)
    cdef void _check(self, Py_ssize_t row) except *
    cpdef digest(self, bytes key)
    cpdef number_equals(self, bytes key, dict seen)
    cpdef tell_apart(self, bytes key, list places)
    cpdef bytes frames(self, bytes inbox, bytes lines, bytes label, Py_ssize_t payload_max, Py_ssize_t rows_max, Py_ssize_t size)
    cpdef bint settle(self, Py_ssize_t row, int state, unsigned long long sequence=*) except -1
    cpdef leave_out(self, Py_ssize_t row)
    cpdef refuse(self, Py_ssize_t row)
    cpdef rewind(self)
    cpdef send_again(self)
