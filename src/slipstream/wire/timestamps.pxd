import cython

from slipstream.wire.buffer cimport OutBuffer

cdef long long _SECOND, _DAY, _EPOCH_DAY
cdef long long _ERA_YEARS, _ERA_DAYS, _CENTURY_DAYS, _LEAP_CYCLE_DAYS, _FIVE_MONTHS_DAYS
cdef bytes _NEVER, _ZEROS

@cython.locals(second="long long", day="long long", of_day="long long", rest="long long", digits=int)
cpdef void put_timestamp(OutBuffer out, long long ns) except *
@cython.locals(era="long long", of_era="long long", leap_days="long long", year="long long", of_year="long long", month="long long", of_month="long long", is_next_year=bint)
cdef void _put_date(OutBuffer out, long long day) except *
@cython.locals(bound="long long")
cdef void _put_digits(OutBuffer out, long long number, int width) except *
