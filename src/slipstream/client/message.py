"""A message as a subscriber receives it.

What a message is made of is cut out of the read once; text and headers are decoded when they are
asked for, and then kept.
"""

from typing import TYPE_CHECKING, Any, TypeVar, overload

import slipstream.wire.ascii as char
from slipstream.client.codecs import Kind, decode_message
from slipstream.client.errors import NoReplySubjectError
from slipstream.client.payload import HeadersLike, Payload, header_bytes, payload_bytes
from slipstream.client.payload import subject_bytes as as_subject
from slipstream.client.value_types import Typed, Value_co
from slipstream.errors import ProtocolError
from slipstream.wire.headers import Headers, find, status

if TYPE_CHECKING:
    from slipstream.client.write_buffer import WriteBuffer
    from slipstream.wire.server_frames import ServerFrames

T = TypeVar("T")
_int = int  # the name `int` in a compiled module's annotations is a C type


class Compiled:
    """The first base of a compiled class that also has one of Python's: Cython wants one of its own
    there."""


class Message(Compiled, Typed[Value_co]):
    """A message: `subject`, `reply` ("" if none), `data`, `headers`; `respond` answers it.

    ``Message[Order]`` is one whose `value` is an `Order`, in annotations.
    Only servers set `status` (an integer like 503; 0 for ordinary messages) and `description`.
    """

    def __init__(
        self,
        subject: str,
        data: Payload = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> None:
        self._subject = as_subject(subject)
        self._reply = as_subject(reply) if reply else b""
        self._block = b"" if headers is None else header_bytes(headers)
        self.data = payload_bytes(data)
        self._headers: Headers | None = None
        self._write_buffer: WriteBuffer | None = None
        self._kind: Any = None

    def fill(self, frames: "ServerFrames", write_buffer: "WriteBuffer") -> None:
        """Become the message that `frames` stands at; for `__new__` without `__init__`."""
        data = frames.data
        self._subject = frames.subject
        self._reply = frames.reply
        header_start = frames.header_start
        body_start = frames.body_start
        self._block = data[header_start:body_start] if header_start < body_start else b""
        self.data = data[body_start : frames.end]
        self._headers = None
        self._write_buffer = write_buffer
        self._kind = None

    @property
    def subject(self) -> str:
        """Where it was published."""
        return self._subject.decode("utf-8", "surrogateescape")

    @property
    def reply(self) -> str:
        """Where an answer is awaited; "" if it is not."""
        return self._reply.decode("utf-8", "surrogateescape")

    @property
    def raw_subject(self) -> bytes:
        """`subject` as it came over the wire."""
        return self._subject

    @property
    def raw_reply(self) -> bytes:
        """`reply` as it came over the wire."""
        return self._reply

    @property
    def header_block(self) -> bytes:
        """The header block as it came over the wire; b"" if there is none."""
        return self._block

    @property
    def headers(self) -> Headers:
        """The headers; empty if there are none. Raises `ProtocolError` if they are malformed."""
        if self._headers is None:
            self._headers = Headers.parse(self._block) if self._block else Headers()
        return self._headers

    def header(self, name: str) -> str | None:
        """The first value of one header, found without reading the others."""
        if not self._block:
            return None
        value = find(self._block, 0, len(self._block), name.encode())
        return None if value is None else value.decode("utf-8", "surrogateescape")

    @property
    def value(self) -> Value_co:
        """The payload as the type that was given where it was asked for; bytes if none was.

        Decoded at each use; raises `CodecError` if the payload is not of that type.
        """
        value: Value_co = self._value()
        return value

    def _value(self) -> Any:
        return self.data if self._kind is None else self._decoded(self._kind)

    @overload
    def decode(self, type: "Kind[T]") -> T: ...
    @overload
    def decode(self, type: object) -> Any: ...
    def decode(self, type: object) -> object:
        """`data` as a value of `type`: a Struct, dataclass, pydantic model, `str`, or a `Codec`.

        Raises `CodecError` if it is not.
        """
        return self._decoded(type)

    def _decoded(self, kind: Any) -> Any:
        return decode_message(
            self, kind, None if self._write_buffer is None else self._write_buffer.codecs
        )

    def expect(self, kind: Any) -> None:
        """Let `value` be of this type."""
        self._kind = kind

    @property
    def status(self) -> _int:
        """The status code that a server set; 0 in ordinary messages."""
        if len(self._block) < 12 or self._block[8] != char.SPACE:
            return 0
        return status(self._block)[0]

    @property
    def description(self) -> str:
        """What the server says about `status`."""
        return status(self._block)[1] if self._block else ""

    @property
    def size(self) -> _int:
        """Bytes as servers count them: subject, reply, headers and data."""
        return len(self._subject) + len(self._reply) + len(self._block) + len(self.data)

    async def respond(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer; waits only while too much is waiting to be sent.

        Raises `NoReplySubjectError` if no answer is awaited, and what `Connection.publish` raises.
        """
        write_buffer = self._answerable()
        if write_buffer.crowded:
            await write_buffer.room()
        self.respond_nowait(data, headers=headers)

    def respond_nowait(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer without ever waiting; raises what `Connection.publish_nowait` raises."""
        block = b"" if headers is None else header_bytes(headers)
        write_buffer = self._answerable()
        write_buffer.put_message(self._reply, b"", block, payload_bytes(data, write_buffer.codecs))

    def _answerable(self) -> "WriteBuffer":
        if self._write_buffer is None or not self._reply:
            raise NoReplySubjectError(
                f"respond to a message on {self.subject!r}: it has no reply subject, so nobody "
                "awaits an answer. Send it with `request`"
            )
        return self._write_buffer

    def __repr__(self) -> str:
        reply = f", reply={self.reply!r}" if self._reply else ""
        headers = f", headers={self._shown_headers()}" if self._block else ""
        data = repr(self.data) if len(self.data) <= 64 else f"<{len(self.data)} bytes>"
        return f"{self.__class__.__name__}({self.subject!r}, {data}{reply}{headers})"

    def _shown_headers(self) -> str:
        try:
            return repr(dict(self.headers.items()))
        except ProtocolError:
            return repr(self._block[:64])

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a received message belongs to its connection; send its parts instead")


def message_of(frames: "ServerFrames", write_buffer: "WriteBuffer") -> Message:
    """The message that `frames` stands at."""
    message = Message.__new__(Message)
    message.fill(frames, write_buffer)
    return message
