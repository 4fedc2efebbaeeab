"""Backups in directories, from and to both servers."""

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream, Stream, StreamConfig
from slipstream.client.jetstream.backup import DATA, META, FrameMeter
from slipstream.client.jetstream.errors import ApiError, BackupError, StreamNotFoundError
from tests.client.own_server import OwnServer
from tests.pages import blocks, run

MakeStream = Callable[..., Awaitable[Stream]]


async def fill(make_stream: MakeStream, js: JetStream, **fields: Any) -> str:
    """A stream of 2,000 messages and more than one chunk, with a consumer; its name."""
    stream = await make_stream(**fields)
    name = stream.cached_info.config.name
    for i in range(2000):
        await js.publish_async(f"{name}.{i % 9}", os.urandom(600) + b"%d" % i)
    await js.publish_async_complete()
    consumer = await stream.create_consumer(durable_name="c")
    for message in await consumer.fetch(3):
        await message.ack_sync()
    return name


@pytest.mark.parametrize("storage", ["file", "memory"])
async def test_a_stream_comes_back_from_a_directory(
    js: JetStream, make_stream: MakeStream, tmp_path: Path, storage: str
) -> None:
    name = await fill(make_stream, js, storage=storage)
    before = await js.stream_info(name)
    steps: list[tuple[int, int]] = []
    found = await js.backup_stream(
        name, tmp_path / "b", progress=lambda done, total: steps.append((done, total))
    )
    assert sorted(os.listdir(tmp_path / "b")) == [META, DATA]
    assert found.bytes == (tmp_path / "b" / DATA).stat().st_size
    assert found.state.messages == 2000
    assert found.config.name == name
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (before.state.bytes, before.state.bytes)
    await js.delete_stream(name)
    steps.clear()
    restored = await js.restore_stream(
        tmp_path / "b", progress=lambda done, total: steps.append((done, total))
    )
    assert restored.state == before.state
    assert steps[-1] == (found.bytes, found.bytes)
    info = await js.consumer_info(name, "c")
    assert (info.ack_floor.stream_seq, info.num_pending) == (3, 1997)


async def test_it_may_come_back_with_another_configuration(
    js: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    name = await fill(make_stream, js, storage="file")
    await js.backup_stream(name, tmp_path, consumers=False)
    meta = json.loads((tmp_path / META).read_bytes())
    config = StreamConfig.from_wire(meta["config"])
    config.name, config.subjects = name + "-copy", [name + "-copy.>"]
    restored = await js.restore_stream(tmp_path, config=config)
    assert restored.config.name == name + "-copy"
    assert (restored.state.messages, restored.state.consumer_count) == (2000, 0)
    await js.delete_stream(name + "-copy")


async def test_what_is_wrong_is_said(
    js: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    with pytest.raises(StreamNotFoundError):
        await js.backup_stream("NONE", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    name = await fill(make_stream, js, storage="file")
    await js.backup_stream(name, tmp_path / "b")
    with pytest.raises(BackupError, match="holds a backup already"):
        await js.backup_stream(name, tmp_path / "b")
    with pytest.raises(ApiError) as there:
        await js.restore_stream(tmp_path / "b")
    assert there.value.err_code == 10130
    await js.delete_stream(name)
    whole = (tmp_path / "b" / DATA).read_bytes()
    for wrong in (whole[:-100], b"", b"no archive"):
        (tmp_path / "b" / DATA).write_bytes(wrong)
        with pytest.raises(ApiError) as refused:
            await js.restore_stream(tmp_path / "b")
        assert refused.value.err_code == 10062
        with suppress(StreamNotFoundError):  # nats-server keeps what came before the damage
            await js.delete_stream(name)


@pytest.mark.parametrize("content", [None, b"x", b"[]", b'{"state":{}}'])
async def test_a_directory_without_a_backup_is_refused(
    js: JetStream, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / META).write_bytes(content)
        (tmp_path / DATA).write_bytes(b"")
    with pytest.raises(BackupError, match="is no backup"):
        await js.restore_stream(tmp_path)


def frames() -> bytes:
    """Chunks as compressors make them: a name, compressed, plain, and one to pass over."""
    packed = b"\x90\x4e" + bytes(30)  # says that it holds 10,000 bytes
    parts = [
        (0xFF, b"S2sTwO"),
        (0, bytes(4) + packed),
        (1, bytes(4) + bytes(500)),
        (0x99, bytes(7)),
    ]
    parts.append((0, bytes(4) + packed))
    return b"".join(bytes([kind]) + len(one).to_bytes(3, "little") + one for kind, one in parts)


@pytest.mark.parametrize("step", [1, 2, 5, 13, 40, 1000])
def test_progress_counts_what_chunks_hold(step: int) -> None:
    meter = FrameMeter()
    data = frames()
    for at in range(0, len(data), step):
        meter.feed(data[at : at + step])
    assert meter.bytes == 20_500


async def test_the_examples_of_the_page_run(
    own_server: OwnServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await slipstream.connect(own_server.url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ORDERS", subjects=["orders.>"])
        await js.publish("orders.1", b"x")
        for block in blocks("backups.md"):
            await run(block, {"js": js})
    assert capsys.readouterr().out.endswith("1 messages are back\n1 messages are new\n")
