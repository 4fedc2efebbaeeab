"""Rows to be published: Arrow columns become a run of HPUB frames without an object for each row.

A `RowBlock` reads the buffers of the columns of one record batch and knows, row by row, how far
each has come (`states`). `digest` gives each row its identity, `frames` writes the frames of the
next rows that have not been sent, and acknowledgements are noted by the row's number, which is the
last token of the reply subject.

The identity is SipHash-2-4 with 128 bits (J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast
short-input PRF", 2012) over the lengths and bytes of subject, message id, extra header lines and
body. Its key is the writer's, so that nobody who only writes rows can make two that collide.

The compiled build replaces this module by `row_block.pyx`, which reads raw memory; this is its
plain twin and test oracle.
"""

import struct
from base64 import urlsafe_b64encode

from slipstream.model.header_fields import NATS_MSG_ID

TO_SEND = 0
SENT = 1
STORED = 2
LEFT_OUT = 3  # an earlier attempt has stored it
REFUSED = 4  # it cannot be sent as it is, or the server does not want it

SUBJECTS_MAX_BYTES = 4000
_MASK = 2**64 - 1

Column = tuple[int, object, object]
"""Of a column of text or bytes: the first row's place, the offsets (int32), the bytes."""


class RowBlock:
    """`count` rows. `subjects` is a column or, for all rows, bytes; the last two may be missing.

    `extras` are finished header lines, `ids` become `Nats-Msg-Id`. Raises ValueError if the
    columns reach outside of their buffers.
    """

    def __init__(
        self,
        count: int,
        subjects: "Column | bytes",
        bodies: Column,
        extras: "Column | None" = None,
        ids: "Column | None" = None,
    ) -> None:
        self.count = count
        self.states = bytearray(count)
        self.digests = b""
        self.sum_low = 0  # of the digests, in two halves modulo 2**64: whatever their order
        self.sum_high = 0
        self.first_token = 0
        self.left = count  # rows that are neither stored, left out nor refused
        self.in_flight = 0
        self.next_row = 0
        self.sequence = 0  # the highest that was acknowledged
        self.payload = 0  # bytes of headers and bodies that `frames` has written
        self._subject = subjects if isinstance(subjects, bytes) else b""
        self._subjects = None if isinstance(subjects, bytes) else _cells(count, subjects)
        self._bodies = _cells(count, bodies)
        self._extras = None if extras is None else _cells(count, extras)
        self._ids = None if ids is None else _cells(count, ids)

    def _check(self, row: int) -> None:
        if not 0 <= row < self.count:
            raise IndexError(row)

    def subject(self, row: int) -> bytes:
        """The subject of a row; as the next three it raises IndexError if there is no such row."""
        self._check(row)
        return self._subject if self._subjects is None else self._subjects[row]

    def body(self, row: int) -> bytes:
        """The body of a row."""
        self._check(row)
        return self._bodies[row]

    def extra(self, row: int) -> bytes:
        """The further header lines of a row."""
        self._check(row)
        return b"" if self._extras is None else self._extras[row]

    def message_id(self, row: int) -> bytes:
        """The message id of a row, b"" if it has none."""
        self._check(row)
        return b"" if self._ids is None else self._ids[row]

    def digest(self, key: bytes) -> None:
        """Find each row's identity: 16 bytes in `digests`. `key` has 16 bytes."""
        found = []
        for row in range(self.count):
            parts = (self.subject(row), self.message_id(row), self.extra(row), self.body(row))
            sizes = struct.pack("<III", *(len(part) for part in parts[:3]))
            found.append(siphash(key, sizes + b"".join(parts)))
        self.digests = b"".join(found)
        for at in range(0, len(self.digests), 16):
            low, high = struct.unpack_from("<QQ", self.digests, at)
            self.sum_low = (self.sum_low + low) & _MASK
            self.sum_high = (self.sum_high + high) & _MASK

    def number_equals(self, key: bytes, seen: dict[bytes, int]) -> None:
        """Give rows that are equal to earlier ones, counted in `seen`, an identity of their own."""
        found = []
        for at in range(0, len(self.digests), 16):
            digest = self.digests[at : at + 16]
            nth = seen.get(digest, 0) + 1
            seen[digest] = nth
            found.append(digest if nth == 1 else siphash(key, digest + struct.pack("<Q", nth)))
        self.digests = b"".join(found)

    def tell_apart(self, key: bytes, places: "list[bytes]") -> None:
        """Make each row's identity depend on its place in the source as well: `places` by row."""
        made = (self.digests[at * 16 : at * 16 + 16] + place for at, place in enumerate(places))
        self.digests = b"".join(siphash(key, data) for data in made)

    def frames(
        self, inbox: bytes, lines: bytes, label: bytes, payload_max: int, rows_max: int, size: int
    ) -> bytes:
        """HPUB frames of the next rows to send: at most `rows_max`, and until they have `size`.

        `inbox` ends with a dot and the row's token is appended to it; `lines` are header lines of
        all rows; `label` begins a header line that the identity ends, none if empty. The identity
        is hexadecimal in a message id, else base64 for URLs without padding (RFC 4648), which is
        shorter. A label that is a message id is left out where a row has one of its own. A row
        that no server takes is `REFUSED`.
        """
        made: list[bytes] = []
        written = rows = 0
        while self.next_row < self.count and rows < rows_max and written < size:
            row = self.next_row
            self.next_row += 1
            if self.states[row] != TO_SEND:
                continue
            subject, body = self.subject(row), self.body(row)
            block = self._block(row, lines, label)
            total = len(block) + len(body)
            if total > payload_max or not _is_sound(subject):
                self.refuse(row)
                continue
            reply = b"%b%d" % (inbox, self.first_token + row)
            sizes = b"%d %d" % (len(block), total) if block else b"%d" % total
            verb = b"HPUB" if block else b"PUB"
            frame = b"%b %b %b %b\r\n%b%b\r\n" % (verb, subject, reply, sizes, block, body)
            made.append(frame)
            written += len(frame)
            rows += 1
            self.payload += total
            self.states[row] = SENT
            self.in_flight += 1
        return b"".join(made)

    def _block(self, row: int, lines: bytes, label: bytes) -> bytes:
        own = self.message_id(row)
        fields = lines + self.extra(row)
        is_id = label.startswith(NATS_MSG_ID)
        if label and not (own and is_id):
            digest = self.digests[row * 16 : row * 16 + 16]
            text = digest.hex().encode() if is_id else urlsafe_b64encode(digest)[:22]
            fields += label + text + b"\r\n"
        if own:
            fields += NATS_MSG_ID + b": " + own + b"\r\n"
        return b"NATS/1.0\r\n" + fields + b"\r\n" if fields else b""

    def settle(self, row: int, state: int, sequence: int = 0) -> bool:
        """A row that was sent has become `state`; False if it was not on its way."""
        if not 0 <= row < self.count or self.states[row] != SENT:
            return False
        self.states[row] = state
        self.in_flight -= 1
        self.left -= state != TO_SEND
        self.sequence = max(self.sequence, sequence)
        return True

    def leave_out(self, row: int) -> None:
        """A row that was not sent is stored already. Raises IndexError if there is no such row."""
        self._check(row)
        if self.states[row] == TO_SEND:
            self.states[row] = LEFT_OUT
            self.left -= 1

    def refuse(self, row: int) -> None:
        """A row that was not sent cannot be. Raises IndexError if there is no such row."""
        self._check(row)
        if self.states[row] == TO_SEND:
            self.states[row] = REFUSED
            self.left -= 1

    def rewind(self) -> None:
        """`frames` looks at all rows once more."""
        self.next_row = 0

    def send_again(self) -> None:
        """Whatever was sent and not acknowledged is to be sent, from the first row on."""
        for row in range(self.count):
            if self.states[row] == SENT:
                self.states[row] = TO_SEND
        self.in_flight = 0
        self.next_row = 0


def _cells(count: int, column: Column) -> list[bytes]:
    start, offsets, data = column
    held, text = memoryview(offsets).cast("B"), memoryview(data).cast("B")  # type: ignore[arg-type]
    if start < 0 or (start + count + 1) * 4 > len(held):
        raise ValueError("a column has fewer offsets than rows")
    ends = struct.unpack_from(f"={count + 1}i", held, start * 4)
    low = 0
    for end in ends:
        if end < low or end > len(text):
            raise ValueError("a column reaches outside of its bytes")
        low = end
    return [bytes(text[ends[row] : ends[row + 1]]) for row in range(count)]


def _is_sound(subject: bytes) -> bool:
    """Whether a server would route it."""
    if not subject or len(subject) > SUBJECTS_MAX_BYTES:
        return False
    if any(c in b" \t\r\n\f" for c in subject):
        return False
    return all(subject.split(b"."))


def siphash(key: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with a result of 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    state = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    whole = len(data) // 8
    last = int.from_bytes(data[whole * 8 :], "little") | (len(data) & 0xFF) << 56
    for word in (*struct.unpack_from(f"<{whole}Q", data), last):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xEE
    _rounds(state, 4)
    low = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _rounds(state, 4)
    return struct.pack("<QQ", low, state[0] ^ state[1] ^ state[2] ^ state[3])


def _rounds(state: list[int], count: int) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13 | v1 >> 51) & _MASK) ^ v0
        v0 = (v0 << 32 | v0 >> 32) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16 | v3 >> 48) & _MASK) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21 | v3 >> 43) & _MASK) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17 | v1 >> 47) & _MASK) ^ v2
        v2 = (v2 << 32 | v2 >> 32) & _MASK
    state[:] = v0, v1, v2, v3
