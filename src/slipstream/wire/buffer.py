"""A growing byte buffer that frames and records are written into.

What a connection or a log writes is gathered here piece by piece and taken in one piece, so that a
batch costs one write. The two frames that carry messages have a method each, because they are
written millions of times a second; all other frames are short text that callers `put`.

The compiled build replaces this module by `buffer.pyx`, which owns raw memory; this is its plain
twin and test oracle.
"""


class OutBuffer:
    """Bytes on their way out: put in pieces, taken in one. `size` is the number of bytes in it."""

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def put(self, data: bytes) -> int:
        """Append `data` whole."""
        self._parts.append(data)
        self.size += len(data)
        return 0

    def put_slice(self, data: bytes, start: int, end: int) -> int:
        """Append ``data[start:end]`` without an object for the slice (compiled).

        Raises IndexError if that reaches outside of `data`.
        """
        if not 0 <= start <= end <= len(data):
            raise IndexError("slice outside of the data")
        return self.put(data[start:end])

    def put_byte(self, value: int) -> int:
        """Append one byte."""
        return self.put(bytes((value,)))

    def put_int(self, value: int) -> int:
        """Append `value` in decimal."""
        return self.put(b"%d" % value)

    def put_message(
        self,
        subject: bytes,
        sid: bytes,
        reply: bytes,
        data: bytes,
        header_start: int,
        body_start: int,
        end: int,
    ) -> int:
        """Append a server's frame with a message: HMSG if it has headers, else MSG.

        The header block is ``data[header_start:body_start]``, the body ``data[body_start:end]``; an
        empty `reply` is none. Raises IndexError if they reach outside of `data`.
        """
        if not 0 <= header_start <= body_start <= end <= len(data):
            raise IndexError("slice outside of the data")
        header = body_start - header_start
        self.put(b"HMSG " if header else b"MSG ")
        self.put(subject + b" " + sid + b" ")
        if reply:
            self.put(reply + b" ")
        if header:
            self.put(b"%d " % header)
        self.put(b"%d\r\n" % (end - header_start))
        self.put(data[header_start:end])
        return self.put(b"\r\n")

    def put_publish(self, subject: bytes, reply: bytes, header: bytes, body: bytes) -> int:
        """Append a client's frame with a message: HPUB if it has headers, else PUB."""
        self.put_publish_start(subject, reply, header, len(body))
        self.put(body)
        return self.put(b"\r\n")

    def put_publish_start(self, subject: bytes, reply: bytes, header: bytes, size: int) -> int:
        """Append such a frame up to its body of `size` bytes, which is for the caller to send."""
        self.put(b"HPUB " if header else b"PUB ")
        self.put(subject + b" ")
        if reply:
            self.put(reply + b" ")
        if header:
            self.put(b"%d " % len(header))
        self.put(b"%d\r\n" % (len(header) + size))
        return self.put(header)

    def take(self) -> bytes:
        """Everything put so far; the buffer is empty afterwards."""
        taken = b"".join(self._parts)
        self.clear()
        return taken

    def clear(self) -> int:
        """Forget everything put so far."""
        self._parts.clear()
        self.size = 0
        return 0
