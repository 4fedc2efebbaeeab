"""A consumer that nobody wants any more is gone from the server, whatever comes in between."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream.api import delete_in_background
from tests.client.scripted_server import Asked, ScriptedServer
from tests.client.test_malformed import until

NOT_FOUND = b'{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}'
DELETED = b'{"success":true}'


def deletions(server: ScriptedServer) -> list[str]:
    return [asked.subject for asked in server.asked]


async def test_the_word_that_a_broken_connection_took_along_is_said_on_the_next() -> None:
    def script(asked: Asked) -> bytes | None:
        return asked.answer(DELETED) if server.accepted == 2 else None

    async with (
        ScriptedServer(script) as server,
        await slipstream.connect(server.url, reconnect_wait=0.01) as nc,
    ):
        delete_in_background(nc.jetstream(), "S", "c")
        await until(lambda: len(server.asked) == 1)
        server.close_clients()
        await until(lambda: len(server.asked) == 2)
        await until(lambda: nc.requests_pending == 0)
        assert deletions(server) == ["$JS.API.CONSUMER.DELETE.S.c"] * 2


async def test_a_consumer_that_was_still_being_made_is_deleted_when_it_is_there() -> None:
    def script(asked: Asked) -> bytes:
        return asked.answer(NOT_FOUND if len(server.asked) < 3 else DELETED)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        delete_in_background(nc.jetstream(), "S", "c", is_being_made=True)
        await until(lambda: len(server.asked) == 3)
        await until(lambda: nc.requests_pending == 0)


async def test_one_that_had_been_made_is_not_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slipstream.client.jetstream.api.WAIT_FIRST_SECONDS", 0.0)
    async with (
        ScriptedServer(lambda asked: asked.answer(NOT_FOUND)) as server,
        await slipstream.connect(server.url) as nc,
    ):
        delete_in_background(nc.jetstream(), "S", "c")
        await until(lambda: nc.requests_pending == 0)
        await asyncio.sleep(0)
        await nc.flush()
        assert len(server.asked) == 1


async def test_an_answer_that_is_none_ends_it() -> None:
    async with (
        ScriptedServer(lambda asked: asked.answer(b"[]")) as server,
        await slipstream.connect(server.url) as nc,
    ):
        delete_in_background(nc.jetstream(), "S", "c", is_being_made=True)
        await until(lambda: nc.requests_pending == 0)


async def test_a_closed_connection_says_nothing() -> None:
    async with ScriptedServer(lambda asked: None) as server:
        nc = await slipstream.connect(server.url)
        js = nc.jetstream()
        await nc.close()
        delete_in_background(js, "S", "c")
        assert nc.requests_pending == 0
