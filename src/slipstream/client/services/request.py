"""A request to an endpoint, and how to refuse it."""

from typing import Any, TypeVar

from slipstream.client.errors import ClientError
from slipstream.client.message import Message
from slipstream.client.payload import HeadersLike, Payload
from slipstream.wire.headers import Headers

T = TypeVar("T")
ERROR_HEADER = "Nats-Service-Error"
CODE_HEADER = "Nats-Service-Error-Code"


class ServiceError(ClientError):
    """Raised by a handler: the answer is an error with this `code` and `description`.

    On the asking side, `ServiceError.of` finds one in an answer.
    """

    def __init__(self, code: int, description: str, data: Payload = b"") -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description
        self.data = data

    @classmethod
    def of(cls, answer: Message) -> "ServiceError | None":
        """The error that `answer` carries; None if it carries none."""
        text = answer.header(ERROR_HEADER)
        if text is None:
            return None
        code = answer.header(CODE_HEADER) or ""
        return cls(int(code) if code.isdigit() else 0, text, answer.data)


class ServiceRequest:
    """What a handler gets: `data`, `headers`, `subject`; it answers by returning, or `respond`."""

    __slots__ = ("answered", "error", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.answered = False
        self.error = ""  # as "code:description", for the statistics

    @property
    def subject(self) -> str:
        """Where it was sent."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """Its payload."""
        return self.message.data

    @property
    def reply(self) -> str:
        """Where the answer goes; "" if none is awaited."""
        return self.message.reply

    @property
    def value(self) -> Any:
        """The payload as the endpoint's `type`; raises `CodecError`, which answers with a 400."""
        return self.message.value

    def decode(self, type: "type[T]") -> T:
        """The payload as a `type`; raises `CodecError`, which answers with a 400."""
        return self.message.decode(type)

    @property
    def headers(self) -> Headers:
        """Its headers."""
        return self.message.headers

    async def respond(self, data: Payload = b"", *, headers: HeadersLike | None = None) -> None:
        """Answer; may be done several times for who asked with `request_many`."""
        self.answered = True
        await self.message.respond(data, headers=headers)

    async def respond_error(
        self,
        code: int,
        description: str,
        data: Payload = b"",
        *,
        headers: Headers | dict[str, str] | None = None,
    ) -> None:
        """Answer with an error; raising `ServiceError` does the same. Raises ValueError."""
        if not description or code <= 0:
            raise ValueError("an error answer needs a description and a code above 0")
        self.error = f"{code}:{description}"
        fields = Headers(headers)
        fields[ERROR_HEADER] = " ".join(description.split())
        fields[CODE_HEADER] = str(code)
        await self.respond(data, headers=fields)
