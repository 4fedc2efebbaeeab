"""Errors of the JetStream API, as clients see them (docs/protocol/events.md#errors)."""

import msgspec

from slipstream.errors import Error
from slipstream.model.error_codes import ErrorCode


class ErrorBody(msgspec.Struct):
    """The `error` object of a response."""

    code: int
    err_code: int
    description: str


class ApiError(Error):
    """The API says no: `code` is HTTP-like, `err_code` says exactly what."""

    def __init__(self, err_code: ErrorCode, **fills: object) -> None:
        text = err_code.description
        for name, value in fills.items():
            text = text.replace("{" + name + "}", str(value))
        super().__init__(text)
        self.code = err_code.status
        self.err_code = err_code
        self.description = text

    @property
    def body(self) -> ErrorBody:
        """As it stands in a response."""
        return ErrorBody(self.code, self.err_code, self.description)


def config_error(text: str) -> ApiError:
    """A stream configuration is wrong."""
    return ApiError(ErrorCode.STREAM_INVALID_CONFIG, err=text)


def bad_json(detail: str) -> ApiError:
    """A request's body cannot be read."""
    return ApiError(ErrorCode.INVALID_JSON, err=detail)


def pedantic_error(text: str) -> ApiError:
    """The server would have to change a value, and was asked not to."""
    return ApiError(ErrorCode.PEDANTIC, err=text)
