"""What is gone and what only does not answer at the moment are distinguished."""

import msgspec
import pytest

import slipstream
from slipstream.client.jetstream.errors import JetStreamNotEnabledError, StreamNotFoundError
from slipstream.client.jetstream.stored import last_message
from tests.client.scripted_server import Asked, ScriptedServer

NOBODY = b"NATS/1.0 503\r\n\r\n"
GONE = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}'
STORED = {"subject": "$KV.b.key", "seq": 7, "data": "eA==", "time": "2026-01-02T03:04:05Z"}


async def test_a_bucket_without_direct_gets_at_the_moment_is_asked_for_through_the_api() -> None:
    def script(asked: Asked) -> bytes | None:
        is_direct = ".DIRECT.GET." in asked.subject
        return asked.answer(b"", NOBODY) if is_direct else asked.answer(answer)

    async with ScriptedServer(script) as server, await slipstream.connect(server.url) as nc:
        js = nc.jetstream()
        answer = msgspec.json.encode({"message": STORED})
        found = await last_message(js, "KV_b", "$KV.b.key", is_direct=True)
        assert found is not None
        assert (found.sequence, found.data) == (7, b"x")
        answer = GONE
        with pytest.raises(StreamNotFoundError):
            await last_message(js, "KV_b", "$KV.b.key", is_direct=True)


async def test_a_server_that_is_about_to_stop_has_lost_no_bucket() -> None:
    async with (
        ScriptedServer(lambda asked: asked.answer(b"", NOBODY)) as server,
        await slipstream.connect(server.url) as nc,
    ):
        with pytest.raises(JetStreamNotEnabledError):
            await last_message(nc.jetstream(), "KV_b", "$KV.b.key", is_direct=True)
