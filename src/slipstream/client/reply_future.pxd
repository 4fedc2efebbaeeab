from slipstream.client.write_buffer cimport WriteBuffer


cdef class ReplyFuture:
    cdef public bint _asyncio_future_blocking
    cdef WriteBuffer _write_buffer
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
