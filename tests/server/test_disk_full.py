"""A file system that is really full: a tmpfs of 24 MB, in a mount namespace of the server's own.

The simulated disk fills up in `tests/log/test_disk_trouble.py`; here the kernel says ENOSPC.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.client.jetstream.errors import ApiError
from tests.fix_server_process import SERVER, ServerProcess, started_as

BODY = bytes(64 * 1024)
IN_NAMESPACE = ("unshare", "--map-root-user", "--mount")
MOUNT = 'mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"'


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose store has 24 MB."""
    store = tmp_path / "store"
    store.mkdir()
    inside = (*IN_NAMESPACE, "sh", "-c", MOUNT, str(store))
    if not shutil.which("unshare") or subprocess.run((*inside, "true"), check=False).returncode:
        pytest.skip("this system lets no user mount a tmpfs in a namespace of its own")
    server = started_as((*inside, *SERVER), tmp_path / "server", "-js", "-sd", str(store))
    yield server
    server.kill()


async def fill_up(js: JetStream) -> tuple[int, ApiError]:
    """Publish until the server refuses; how many were stored, and its word."""
    for number in range(1_000):
        try:
            await js.publish("s", BODY)
        except ApiError as error:
            return number, error
    raise AssertionError("a disk of 24 MB took 64 MB")


async def test_a_full_disk_refuses_publishes_serves_the_rest_and_recovers_with_space(
    small_disk: ServerProcess,
) -> None:
    async with await slipstream.connect(small_disk.url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(name="S", subjects=["s"], retention="workqueue")
        consumer = await stream.create_consumer(durable_name="c", max_ack_pending=-1)
        stored, refused = await fill_up(js)
        assert stored > 100
        assert refused.err_code == 10077
        assert "no space left" in refused.description
        assert (await stream.get_message(stored)).data == BODY
        for message in await consumer.fetch(10, timeout=5):
            await message.ack_sync()
        assert (await stream.info()).state.messages == stored - 10
        await stream.purge()
        async with asyncio.timeout(20):
            again = await publish_when_there_is_room(js)
        assert again > stored


async def publish_when_there_is_room(js: JetStream) -> int:
    """The sequence of the first publish that is taken again."""
    while True:
        try:
            return (await js.publish("s", BODY)).sequence
        except ApiError as error:
            if error.err_code != 10077:
                raise
