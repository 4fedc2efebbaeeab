"""A consumer that is deleted in the background is gone, whatever comes in between."""

import asyncio

import pytest

import slipstream
from slipstream.client.jetstream.api import delete_in_background
from tests.client.scripted_server import Asked, ScriptedServer
from tests.client.waiting import until

NOT_FOUND = b'{"error":{"code":404,"err_code":10014,"description":"consumer not found"}}'
DELETED = b'{"success":true}'


def deletions(server: ScriptedServer) -> list[str]:
    return [asked.subject for asked in server.asked]


async def test_a_deletion_that_is_lost_with_its_connection_is_sent_on_the_next() -> None:
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


async def test_a_consumer_that_had_been_made_is_deleted_once(
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


async def test_an_answer_that_cannot_be_read_ends_the_deletion() -> None:
    async with (
        ScriptedServer(lambda asked: asked.answer(b"[]")) as server,
        await slipstream.connect(server.url) as nc,
    ):
        delete_in_background(nc.jetstream(), "S", "c", is_being_made=True)
        await until(lambda: nc.requests_pending == 0)


async def test_a_closed_connection_sends_no_deletion() -> None:
    async with ScriptedServer(lambda asked: None) as server:
        nc = await slipstream.connect(server.url)
        js = nc.jetstream()
        await nc.close()
        delete_in_background(js, "S", "c")
        assert nc.requests_pending == 0
