import cython
cimport slipstream.wire.ascii as char

from slipstream.log.base cimport Log
from slipstream.wire.headers cimport begins_with, next_field, value_end, value_start

cdef int _LOOK_CLOSER, _HOLD, _HOLD_WITH_ID
cdef int _LAST_SEQUENCE, _LAST_SUBJECT, _STREAM, _MESSAGE_ID, _PREFIX_SIZE, _DIGITS_MAX
cdef bytes NATS_PREFIX, _MESSAGE_ID_NAME, _LAST_SEQUENCE_NAME, _LAST_SUBJECT_NAME, _STREAM_NAME

@cython.locals(view="const unsigned char *", seen=int, bit=int, expected="long long", of=bytes, field=bytes, i=Py_ssize_t, k=Py_ssize_t, colon=Py_ssize_t, begin=Py_ssize_t, stop=Py_ssize_t, id="long long")
cpdef int all_hold(bytes name, Log log, bytes subject, bytes data, Py_ssize_t start, Py_ssize_t end) except -1
