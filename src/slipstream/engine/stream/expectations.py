"""The conditions of publishers who write much: a pass over the header that finds that all is well.

A writer that fences itself puts the same three expectations into each message: the stream's name,
and the last sequence of a subject, often another one than its own. `all_hold` reads them in one
compiled pass. Whatever else a header asks, and whatever does not hold, is left to
`ingest_checks`, which knows every field, the order of the checks and the errors.
"""

from slipstream.log.base import Log

_int = int  # the name `int` in a compiled module's annotations is a C type

LOOK_CLOSER = 0
HOLD = 1
HOLD_WITH_ID = 2  # and there is a Nats-Msg-Id


def all_hold(name: bytes, log: Log, subject: bytes, data: bytes, start: _int, end: _int) -> _int:
    """`HOLD` if the block ``data[start:end]`` has no other `Nats-` fields than those that hold."""
    view = data
    seen = 0
    expected = -1
    of = subject
    i = start
    while i < end:
        while i < end and view[i] != 10:
            i += 1
        i += 1
        if i + 5 >= end:
            break
        if view[i] != 78 or view[i + 1] != 97 or view[i + 2] != 116 or view[i + 3] != 115:
            continue
        if view[i + 4] != 45:
            continue
        colon = i + 5
        while colon < end and view[colon] != 58 and view[colon] != 10:
            colon += 1
        begin = colon + 1
        while begin < end and (view[begin] == 32 or view[begin] == 9):
            begin += 1
        stop = begin
        while stop < end and view[stop] != 13 and view[stop] != 10:
            stop += 1
        if colon >= end or view[colon] != 58 or stop >= end or begin == stop:
            return 0
        name_size = colon - i - 5
        if name_size == 6 and data.startswith(b"Msg-Id", i + 5, colon):
            bit = 8
        elif name_size == 30 and data.startswith(b"Expected-Last-Subject-Sequence", i + 5, colon):
            bit = 1
            if stop - begin > 18:
                return 0
            expected = 0
            for k in range(begin, stop):
                if view[k] < 48 or view[k] > 57:
                    return 0
                expected = expected * 10 + (view[k] - 48)
        elif name_size == 38 and data.startswith(
            b"Expected-Last-Subject-Sequence-Subject", i + 5, colon
        ):
            bit = 2
            of = data[begin:stop]
        elif name_size == 15 and data.startswith(b"Expected-Stream", i + 5, colon):
            bit = 4
            if data[begin:stop] != name:
                return 0
        else:
            return 0
        if seen & bit:
            return 0
        seen |= bit
        i = stop
    if seen & 2 and not seen & 1:
        return 0
    if seen & 1:
        id = log.subjects.find(of)  # a pattern is not found
        if id < 0 or expected == 0 or log.subjects.last(id) != expected:
            return 0
    return 2 if seen & 8 else 1
