"""A message on its way through an account."""

from typing import Any


class Inbound:
    """One published message, by reference to the bytes it arrived in.

    A session fills the same object for each message it reads, so it is valid only during the call
    that receives it: what a receiver keeps it must copy.

    `to` is where it goes, if that is not its own subject: a consumer delivers messages under the
    subjects that they were published to.

    ``data[header_start:body_start]`` is the header block (empty when there is none) and
    ``data[body_start:end]`` the body.
    """

    __slots__ = ("body_start", "data", "end", "header_start", "reply", "session", "subject", "to")

    def __init__(
        self,
        subject: bytes = b"",
        reply: bytes = b"",
        header: bytes = b"",
        body: bytes = b"",
        session: Any = None,
    ) -> None:
        self.subject = subject
        self.reply = reply  # b"" when there is none
        self.data = header + body if header else body
        self.header_start = 0
        self.body_start = len(header)
        self.end = len(self.data)
        self.to = b""  # b"" when it goes to `subject`
        self.session = session  # the publishing ClientSession; None for the engine's own messages

    def under(self, subject: bytes, reply: bytes) -> "Inbound":
        """The same message with another subject and reply, by reference to the same bytes."""
        copy = Inbound(subject, reply, session=self.session)
        copy.data = self.data
        copy.header_start = self.header_start
        copy.body_start = self.body_start
        copy.end = self.end
        return copy

    def header(self) -> bytes:
        """The header block from ``NATS/1.0`` to its closing blank line; b"" when there is none."""
        return self.data[self.header_start : self.body_start]

    def body(self) -> bytes:
        """The payload without headers."""
        return self.data[self.body_start : self.end]
