"""A JetStream context, and streams that no other test uses."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

import slipstream
from slipstream.client.errors import ClientError
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import ApiError, StreamNotFoundError

MakeStream = Callable[..., Awaitable[Stream]]
T = TypeVar("T")
REMOVING = "error creating store for stream"  # what nats-server says meanwhile


async def or_skip(asking: Awaitable[T]) -> T:
    """What is asked for; skips the test, in the server's own words, if it has no such feature."""
    try:
        return await asking
    except ApiError as error:
        if "not supported by this server" not in error.description:
            raise
        pytest.skip(error.description)


@pytest.fixture
def js(nc: "slipstream.Connection") -> JetStream:
    """The context of the test's connection."""
    context: JetStream = nc.jetstream()
    return context


@pytest.fixture
async def make_stream(js: JetStream) -> "AsyncIterator[MakeStream]":
    """Makes a stream with a name, and subjects under that name, of its own; deleted at the end."""
    names: list[str] = []

    async def make(**fields: Any) -> Stream:
        name = fields.pop("name", "S" + uuid.uuid4().hex[:12])
        names.append(name)
        fields.setdefault("subjects", [f"{name}.>"])
        fields.setdefault("storage", "memory")
        while True:
            try:
                return await js.create_stream(name=name, **fields)
            except ApiError as error:
                # nats-server takes a deleted stream's files away after it has said that it is gone.
                if name not in names[:-1] or error.description != REMOVING:
                    raise
                await asyncio.sleep(0.05)

    yield make
    for name in names:
        try:
            await js.delete_stream(name)
        except (StreamNotFoundError, ClientError):
            pass


@pytest.fixture
async def stream(make_stream: MakeStream) -> Stream:
    """An empty stream."""
    return await make_stream()
