from slipstream.client.outbox cimport Outbox


cdef class Answer:
    cdef public bint _asyncio_future_blocking
    cdef Outbox _outbox
    cdef bint _is_done
    cdef bint _is_cancelled
    cdef object _result
    cdef object _error
    cdef object _callback
    cdef object _context

    cpdef done(self)
    cpdef set_result(self, object result)
    cpdef set_exception(self, object error)
    cdef _set(self)
    cpdef resume(self)
    cpdef resume_later(self)
