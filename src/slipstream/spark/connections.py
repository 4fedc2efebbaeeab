"""Connections to the server, of the driver and of tasks: how one is opened, and what may pass."""

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

import msgspec

import slipstream
from slipstream.client.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError,
)
from slipstream.client.jetstream.errors import ApiError, JetStreamNotEnabledError, PublishError
from slipstream.errors import Error
from slipstream.spark.options import ServerOptions

if TYPE_CHECKING:
    from slipstream.client import Connection
    from slipstream.client.jetstream import JetStream

T = TypeVar("T")

RETRY_WAIT_SECONDS = 0.25
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


def wait_for(work: Coroutine[object, object, T]) -> T:
    """What a coroutine returns; on a thread of its own, as the caller's may have a running loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def may_pass(error: Error) -> bool:
    """Whether it is worth another attempt: the server is away, or not ready."""
    if isinstance(error, ApiError):
        return error.code == HTTPStatus.SERVICE_UNAVAILABLE
    return isinstance(error, _PASSING)


def is_worth_a_retry(error: Error | OSError) -> bool:
    """The same of work that publishes, too, and that may be done twice."""
    return not isinstance(error, Error) or may_pass(error) or isinstance(error, PublishError)


async def patiently(work: Callable[[], Awaitable[T]], options: ServerOptions) -> T:
    """What the coroutine returns or raises.

    It is begun anew while the server is away, or another one comes to lead its group, for up to
    `retryTimeout`. A server without JetStream is not waited for.
    """
    deadline = time.monotonic() + options.retry_timeout
    while True:
        try:
            return await work()
        except (Error, OSError) as error:
            is_without = isinstance(error, JetStreamNotEnabledError)
            if is_without or not is_worth_a_retry(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_WAIT_SECONDS)


def jetstream(connection: "Connection", options: ServerOptions) -> "JetStream":
    """The JetStream context that the options ask for."""
    return connection.jetstream(domain=options.domain) if options.domain else connection.jetstream()
