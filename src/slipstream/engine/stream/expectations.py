"""The conditions of publishers who write much: a pass over the header that finds that all is well.

A writer that fences itself puts the same three expectations into each message: the stream's name,
and the last sequence of a subject, often another one than its own. `all_hold` reads them in one
compiled pass. Whatever else a header asks, and whatever does not hold, is left to
`ingest_checks`, which knows every field, the order of the checks and the errors.
"""

import slipstream.wire.ascii as char
from slipstream.log.base import Log
from slipstream.model.header_fields import (
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT,
    NATS_EXPECTED_STREAM,
    NATS_MSG_ID,
    NATS_PREFIX,
)
from slipstream.wire.headers import begins_with, next_field, value_end, value_start

_int = int  # the name `int` in a compiled module's annotations is a C type

LOOK_CLOSER = 0
HOLD = 1
HOLD_WITH_ID = 2  # and there is a Nats-Msg-Id
# As constants of C in the compiled build.
_LOOK_CLOSER = LOOK_CLOSER
_HOLD = HOLD
_HOLD_WITH_ID = HOLD_WITH_ID

# Fields that were seen, as bits.
_LAST_SEQUENCE = 1
_LAST_SUBJECT = 2
_STREAM = 4
_MESSAGE_ID = 8

_PREFIX_SIZE = len(NATS_PREFIX)
_DIGITS_MAX = 18

# The names of these fields after that.
_MESSAGE_ID_NAME = NATS_MSG_ID[len(NATS_PREFIX) :]
_LAST_SEQUENCE_NAME = NATS_EXPECTED_LAST_SUBJECT_SEQUENCE[len(NATS_PREFIX) :]
_LAST_SUBJECT_NAME = NATS_EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT[len(NATS_PREFIX) :]
_STREAM_NAME = NATS_EXPECTED_STREAM[len(NATS_PREFIX) :]


def all_hold(name: bytes, log: Log, subject: bytes, data: bytes, start: _int, end: _int) -> _int:
    """`HOLD` if the block ``data[start:end]`` has no other `Nats-` fields than those that hold."""
    view = data
    seen = 0
    expected = -1
    of = subject
    i = next_field(data, start, end)
    while i + _PREFIX_SIZE < end:
        if not begins_with(data, i, NATS_PREFIX):
            i = next_field(data, i, end)
            continue
        i += _PREFIX_SIZE
        colon = i
        while colon < end and view[colon] != char.COLON and view[colon] != char.LF:
            colon += 1
        begin = value_start(data, colon + 1, end)
        stop = value_end(data, begin, end)
        if colon >= end or view[colon] != char.COLON or stop >= end or begin == stop:
            return _LOOK_CLOSER
        field = view[i:colon]
        if field == _MESSAGE_ID_NAME:
            bit = _MESSAGE_ID
        elif field == _LAST_SEQUENCE_NAME:
            bit = _LAST_SEQUENCE
            if stop - begin > _DIGITS_MAX:
                return _LOOK_CLOSER
            expected = 0
            for k in range(begin, stop):
                if view[k] < char.ZERO or view[k] > char.NINE:
                    return _LOOK_CLOSER
                expected = expected * 10 + (view[k] - char.ZERO)
        elif field == _LAST_SUBJECT_NAME:
            bit = _LAST_SUBJECT
            of = view[begin:stop]
        elif field == _STREAM_NAME:
            bit = _STREAM
            if view[begin:stop] != name:
                return _LOOK_CLOSER
        else:
            return _LOOK_CLOSER
        if seen & bit:
            return _LOOK_CLOSER
        seen |= bit
        i = next_field(data, stop, end)
    if seen & _LAST_SUBJECT and not seen & _LAST_SEQUENCE:
        return _LOOK_CLOSER
    if seen & _LAST_SEQUENCE:
        id = log.subjects.find(of)  # a pattern is not found
        if id < 0 or expected == 0 or log.subjects.last(id) != expected:
            return _LOOK_CLOSER
    return _HOLD_WITH_ID if seen & _MESSAGE_ID else _HOLD
