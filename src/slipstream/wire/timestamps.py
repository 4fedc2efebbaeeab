"""Times as text on the wire: RFC 3339 in UTC, written without an object for the date.

`model.times` has the text as a string, and reads it; this is for what is written a hundred thousand
times a second. The two agree on every time that 64 bits hold. The compiled build replaces this
module by `timestamps.pyx`, in which every divisor is a constant; this is its plain twin.
"""

from slipstream.wire.buffer import OutBuffer

_SECOND = 1_000_000_000  # ns
_DAY = 86_400  # s
_NEVER = b"0001-01-01T00:00:00Z"
_ZEROS = b"000000000"
# Years that begin on 1 March have their leap day at the end, and their months follow one rule. 400
# of them, whose days repeat, are an era; the first one here began with the year 0.
_EPOCH_DAY = 719_468
_ERA_YEARS = 400
_ERA_DAYS = 146_097
_CENTURY_DAYS = 36_524
_LEAP_CYCLE_DAYS = 1_461
_FIVE_MONTHS_DAYS = 153


def put_timestamp(out: OutBuffer, ns: int) -> None:
    """Append a time, in ns since the epoch: "2026-01-31T23:59:59.5Z", with as many of nine digits
    after the second as it takes. 0 stands for never, the first second of year 1."""
    if ns == 0:
        out.put(_NEVER)
        return
    second = ns // _SECOND
    rest = ns - second * _SECOND
    if rest < 0:  # before the epoch C rounds up where Python rounds down
        second -= 1
        rest += _SECOND
    day = second // _DAY
    of_day = second - day * _DAY
    if of_day < 0:
        day -= 1
        of_day += _DAY
    _put_date(out, day + _EPOCH_DAY)
    out.put(b"T")
    _put_digits(out, of_day // 3600, 2)
    out.put(b":")
    _put_digits(out, of_day // 60 % 60, 2)
    out.put(b":")
    _put_digits(out, of_day % 60, 2)
    if rest:
        digits = 9
        while rest % 10 == 0:
            rest //= 10
            digits -= 1
        out.put(b".")
        _put_digits(out, rest, digits)
    out.put(b"Z")


def _put_date(out: OutBuffer, day: int) -> None:
    """Append the date of the day that comes so many days after 1 March of year 0."""
    era = day // _ERA_DAYS
    of_era = day - era * _ERA_DAYS
    # How many leap days came before: one in four years, but none at the end of a century, ...
    leap_days = of_era // (_LEAP_CYCLE_DAYS - 1) - of_era // _CENTURY_DAYS
    leap_days += of_era // (_ERA_DAYS - 1)  # ... except at the end of the era
    year = (of_era - leap_days) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // _FIVE_MONTHS_DAYS  # 0 is March
    of_month = of_year - (_FIVE_MONTHS_DAYS * month + 2) // 5
    is_next_year = month >= 10
    _put_digits(out, era * _ERA_YEARS + year + (1 if is_next_year else 0), 4)
    out.put(b"-")
    _put_digits(out, month - 9 if is_next_year else month + 3, 2)
    out.put(b"-")
    _put_digits(out, of_month + 1, 2)


def _put_digits(out: OutBuffer, number: int, width: int) -> None:
    """Append a number that is not negative, with zeros before it up to `width` digits."""
    bound = 10
    missing = width - 1
    while missing > 0 and number >= bound:
        bound *= 10
        missing -= 1
    out.put_slice(_ZEROS, 0, missing)
    out.put_int(number)
