"""The messages in a packed answer (docs/protocol/streams.md#packed-batches)."""

import itertools
import struct

Row = tuple[int, int, bytes, bytes, bytes]  # sequence, time, subject, header block, body


def rows_in(data: bytes) -> list[Row]:
    """Those in the answer's body."""
    rows: list[Row] = []
    at = 0
    while at < len(data):
        sequence, time, header, body, subject = struct.unpack_from("<QqIIH", data, at)
        ends = [at := at + 26, at := at + subject, at := at + header, at := at + body]
        parts = [data[start:end] for start, end in itertools.pairwise(ends)]
        rows.append((sequence, time, parts[0], parts[1], parts[2]))
    return rows
