"""Times as text on raw memory; `timestamps.py` is the plain twin and says what the steps are."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from slipstream.wire.ascii cimport ZERO
from slipstream.wire.buffer cimport PAIRS, OutBuffer

cdef enum:
    SECOND = 1_000_000_000  # ns
    DAY = 86_400  # s
    EPOCH_DAY = 719_468
    ERA_YEARS = 400
    ERA_DAYS = 146_097
    CENTURY_DAYS = 36_524
    LEAP_CYCLE_DAYS = 1_461
    FIVE_MONTHS_DAYS = 153
    TEXT_MAX = 40  # bytes of a time

cdef bytes _NEVER = b"0001-01-01T00:00:00Z"


cdef inline unsigned char *write_pair(unsigned char *to, uint32_t number, unsigned char mark) noexcept:
    """Write a number below 100 in two digits, and a mark; where that ends."""
    memcpy(to, PAIRS + 2 * number, 2)
    to[2] = mark
    return to + 3


cdef inline unsigned char *write_date(unsigned char *to, int64_t day) noexcept:
    """Write the date of the day that comes so many days after 1 March of year 0."""
    cdef int64_t era = day // ERA_DAYS
    cdef uint32_t of_era = <uint32_t> (day - era * ERA_DAYS)
    cdef uint32_t leap_days = of_era // (LEAP_CYCLE_DAYS - 1) - of_era // CENTURY_DAYS + of_era // (ERA_DAYS - 1)
    cdef uint32_t year = (of_era - leap_days) // 365
    cdef uint32_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef uint32_t month = (5 * of_year + 2) // FIVE_MONTHS_DAYS
    cdef uint32_t of_month = of_year - (FIVE_MONTHS_DAYS * month + 2) // 5
    cdef bint is_next_year = month >= 10
    year += <uint32_t> era * ERA_YEARS + is_next_year
    memcpy(to, PAIRS + 2 * (year // 100), 2)
    to = write_pair(to + 2, year % 100, c"-")
    to = write_pair(to, month - 9 if is_next_year else month + 3, c"-")
    return write_pair(to, of_month + 1, c"T")


cdef inline unsigned char *write_fraction(unsigned char *to, uint32_t ns) noexcept:
    """Write a part of a second, which is not 0, without the zeros at its end."""
    cdef int i
    to[0] = c"."
    for i in range(4):
        memcpy(to + 8 - 2 * i, PAIRS + 2 * (ns % 100), 2)
        ns //= 100
    to[1] = <unsigned char> (ZERO + ns)
    to += 10
    while to[-1] == ZERO:
        to -= 1
    return to


cpdef void put_timestamp(OutBuffer out, long long ns) except *:
    cdef int64_t second, rest, day
    cdef uint32_t of_day
    cdef unsigned char *to
    if ns == 0:
        out.put(_NEVER)
        return
    out._grow(TEXT_MAX)
    second = ns // SECOND
    rest = ns - second * SECOND
    if rest < 0:  # before the epoch C rounds up where Python rounds down
        second -= 1
        rest += SECOND
    second += EPOCH_DAY * <int64_t> DAY  # no time that 64 bits hold is before that
    day = second // DAY
    of_day = <uint32_t> (second - day * DAY)
    to = write_date(out._data + out.size, day)
    to = write_pair(to, of_day // 3600, c":")
    to = write_pair(to, of_day // 60 % 60, c":")
    to = write_pair(to, of_day % 60, c"Z")
    if rest:
        to = write_fraction(to - 1, <uint32_t> rest)
        to[0] = c"Z"
        to += 1
    out.size = to - out._data
