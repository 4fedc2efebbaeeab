"""The client runs the same on asyncio's own loop and on uvloop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

import slipstream
from tests.client.own_server import OwnServer
from tests.fix_certificates import Authority

Run = Callable[[Coroutine[Any, Any, None]], None]
RUNS = [asyncio.run, uvloop.run]


async def talk(nc: slipstream.Connection) -> None:
    """More than sockets take at once, both ways, and requests."""
    subject = nc.new_inbox()
    received = await nc.subscribe(subject)

    async def publish() -> None:
        for _ in range(200):
            await nc.publish(subject, b"x" * 50_000)

    task = asyncio.create_task(publish())
    for _ in range(200):
        assert len((await received.next(10)).data) == 50_000
    await task
    await nc.subscribe(subject + ".double", handler=lambda m: m.respond(m.data * 2))
    answers = await asyncio.gather(*(nc.request(subject + ".double", b"a") for _ in range(50)))
    assert {answer.data for answer in answers} == {b"aa"}


@pytest.mark.parametrize("run", RUNS)
def test_much_passes_both_ways(run: Run, server_url: str) -> None:
    async def main() -> None:
        async with await slipstream.connect(server_url) as nc:
            await talk(nc)
            await nc.reconnect()
            await talk(nc)

    run(main())


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("first", ["", ", handshake_first: true"])
def test_much_passes_over_tls(
    run: Run,
    first: str,
    make_server: Callable[[str], OwnServer],
    authority: Authority,
    server_files: tuple[str, str],
) -> None:
    certificate, key = server_files
    server = make_server(f'tls {{ cert_file: "{certificate}", key_file: "{key}"{first} }}')

    async def main() -> None:
        async with await slipstream.connect(
            server.url, tls_ca=authority.ca_file, tls_handshake_first=bool(first)
        ) as nc:
            await talk(nc)
            await nc.reconnect()
            await talk(nc)

    run(main())
