from slipstream.wire.buffer cimport OutBuffer

cpdef void put_timestamp(OutBuffer out, long long ns) except *
