import cython
cimport slipstream.wire.ascii as char


cpdef bytes payload_bytes(object data, object registry=*)
@cython.locals(encoded=bytes, view="const unsigned char *", n=Py_ssize_t, i=Py_ssize_t, c=int, previous=int)
cpdef bytes subject_bytes(str subject)
cpdef bytes header_bytes(object headers)
@cython.locals(text=str)
cdef bytes _plain_block(object fields)
