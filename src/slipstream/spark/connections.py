"""Connections to the server, of the driver and of tasks: how one is opened, and what may pass."""

import asyncio
import builtins
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

import slipstream
from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError,
)
from slipstream.client.jetstream.errors import ApiError
from slipstream.errors import Error
from slipstream.spark.options import ServerOptions

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream

_PASSING = (ConnectionClosedError, ConnectionLostError, NoRespondersError, TimeoutError)


async def connect(
    options: ServerOptions, name: str, *, patient: bool = False, lasting: bool = True
) -> "Connection":
    """A connection; a `patient` one waits for a server for up to `retryTimeout`.

    One that is not `lasting` ends when it breaks.
    """
    settings = msgspec.structs.replace(
        options.connect_options(name), wait_for_server=patient, reconnect=lasting
    )
    try:
        async with asyncio.timeout(options.retry_timeout):
            return await slipstream.connect(options.server_list, settings)
    except TimeoutError:
        raise
    except builtins.TimeoutError as error:
        raise TimeoutError(
            f"no server has answered for {options.retry_timeout:g} s ({options!r}): is one there? "
            "The option retryTimeout sets the wait"
        ) from error


def may_pass(error: Error) -> bool:
    """Whether it is worth another attempt: the server is away, or not ready."""
    if isinstance(error, ApiError):
        return error.code == HTTPStatus.SERVICE_UNAVAILABLE
    return isinstance(error, _PASSING)


def jetstream(connection: "Connection", options: ServerOptions) -> "JetStream":
    """The JetStream context that the options ask for."""
    return connection.jetstream(domain=options.domain) if options.domain else connection.jetstream()
