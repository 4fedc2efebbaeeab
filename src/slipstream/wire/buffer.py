"""A growing byte buffer that frames and records are written into.

What a connection or a log writes is gathered here piece by piece and taken in one piece, so that a
batch costs one write. The two frames that carry messages have a method each, because they are
written millions of times a second; all other frames are short text that callers `put`.

A large body that many are sent is not copied for each of them: `share` keeps a reference, and
`take_parts` gives away what was put and what was shared, in order.

The compiled build replaces this module by `buffer.pyx`, which owns raw memory: a MSG frame takes 60
ns there and 710 ns here. This is its plain twin and test oracle.
"""


class OutBuffer:
    """Bytes on their way out: put in pieces, taken in one.

    `size` is the number of bytes that were put since the last `share`, `shared` the number of all
    before: without a `share`, 0.
    """

    __slots__ = ("_parts", "_shares", "shared", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._shares: list[bytes] = []
        self.size = 0
        self.shared = 0

    def put(self, data: bytes) -> None:
        """Append `data` whole."""
        self._parts.append(data)
        self.size += len(data)

    def put_slice(self, data: bytes, start: int, end: int) -> None:
        """Append ``data[start:end]`` without an object for the slice (compiled).

        Raises IndexError if that reaches outside of `data`.
        """
        if not 0 <= start <= end <= len(data):
            raise IndexError("slice outside of the data")
        self.put(data[start:end])

    def put_rest(self, other: "OutBuffer", start: int) -> None:
        """Append what was put into `other` from offset `start` on, which it keeps; nothing may be
        shared there. Raises IndexError if it has less."""
        if not 0 <= start <= other.size:
            raise IndexError("slice outside of the data")
        data = b"".join(other._parts)
        other._parts = [data]
        self.put(data[start:])

    def put_byte(self, value: int) -> None:
        """Append one byte."""
        self.put(bytes((value,)))

    def put_int(self, value: int) -> None:
        """Append `value` in decimal."""
        self.put(b"%d" % value)

    def put_number(self, value: int, width: int) -> None:
        """Append `value`, which is not negative, in `width` bytes, at most 8, the lowest first.

        Raises OverflowError if it needs more, ValueError for another width.
        """
        if not 0 < width <= 8:
            raise ValueError("a number has one to eight bytes")
        self.put(value.to_bytes(width, "little"))

    def put_message(
        self,
        subject: bytes,
        sid: bytes,
        reply: bytes,
        data: bytes,
        header_start: int,
        body_start: int,
        end: int,
    ) -> None:
        """Append a server's frame with a message: HMSG if it has headers, else MSG.

        The header block is ``data[header_start:body_start]``, the body ``data[body_start:end]``; an
        empty `reply` is none. Raises IndexError if they reach outside of `data`.
        """
        if not 0 <= header_start <= body_start <= end <= len(data):
            raise IndexError("slice outside of the data")
        header = body_start - header_start
        self.put_message_line(subject, sid, reply, header, end - header_start)
        self.put(data[header_start:end])
        self.put(b"\r\n")

    def put_message_line(
        self, subject: bytes, sid: bytes, reply: bytes, header: int, total: int
    ) -> None:
        """Append the line of such a frame, with the sizes of its headers and of all."""
        self.put(b"HMSG " if header else b"MSG ")
        self.put(subject + b" " + sid + b" ")
        if reply:
            self.put(reply + b" ")
        if header:
            self.put(b"%d " % header)
        self.put(b"%d\r\n" % total)

    def put_publish(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> None:
        """Append a client's frame with a message: HPUB if it has headers, else PUB."""
        self.put_publish_start(subject, reply, header, len(body))
        self.put(body)
        self.put(b"\r\n")

    def put_publish_start(self, subject: bytes, reply: bytes, header: bytes, size: int) -> None:
        """Append such a frame up to its body of `size` bytes, which is for the caller to send."""
        self.put(b"HPUB " if header else b"PUB ")
        self.put(subject + b" ")
        if reply:
            self.put(reply + b" ")
        if header:
            self.put(b"%d " % len(header))
        self.put(b"%d\r\n" % (len(header) + size))
        self.put(header)

    def share(self, data: bytes) -> None:
        """Append `data` by reference: nothing of it is copied. Only `take_parts` takes it."""
        if self.size:
            self._shares.append(b"".join(self._parts))
            self._parts.clear()
        self._shares.append(data)
        self.shared += self.size + len(data)
        self.size = 0

    def length(self) -> int:
        """The number of bytes that were put and shared so far."""
        return self.size + self.shared

    def take(self) -> bytes:
        """Everything put since the last `share`, after which the buffer holds nothing of it."""
        taken = b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return taken

    def take_parts(self) -> list[bytes]:
        """Everything put and shared so far, in order; the buffer is empty afterwards."""
        parts, self._shares = self._shares, []
        if self.size:
            parts.append(self.take())
        self.shared = 0
        return parts

    def clear(self) -> None:
        """Forget everything put and shared so far."""
        self._parts.clear()
        self._shares.clear()
        self.size = 0
        self.shared = 0
