"""Questions on a terminal: Ctrl-C ends the command, and nobody is asked about what is not there."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import slipstream
from tests.cli.conftest import Cli

INTERRUPTED = 130

# What is asked for, on the line after it, and what the question begins with.
QUESTIONS = [
    (("stream", "add", "NEW"), "Subjects"),
    (("stream", "add"), "Stream Name"),
    (("stream", "edit", "KEPT", "--max-msgs", "1"), "Really edit Stream KEPT"),
    (("stream", "rm", "KEPT"), "Really delete Stream KEPT"),
    (("stream", "rm"), "Select a Stream"),
    (("stream", "seal", "KEPT"), "Really seal Stream KEPT"),
    (("stream", "purge", "KEPT"), "Really purge Stream KEPT"),
    (("stream", "rmm", "KEPT", "1"), "Really remove message 1"),
    (("stream", "view", "KEPT", "1"), "Next Page"),
    (("consumer", "add", "KEPT"), "Consumer name"),
    (("consumer", "add", "KEPT", "new"), "Delivery target"),
    (("consumer", "edit", "KEPT", "c", "--max-deliver", "3"), "Really edit Consumer KEPT > c"),
    (("consumer", "rm", "KEPT", "c"), "Really delete Consumer KEPT > c"),
    (("consumer", "rm", "KEPT"), "Select a Consumer"),
    (("consumer", "pause", "KEPT", "c", "1h"), "Really pause Consumer KEPT > c"),
    (("consumer", "resume", "KEPT", "c"), "Really resume Consumer KEPT > c"),
    (("consumer", "unpin", "KEPT", "c", "g"), "Really unpin client from group KEPT > c > g"),
    (("kv", "del", "KEPT", "k"), "Delete key KEPT > k"),
    (("kv", "del", "KEPT"), "Delete bucket KEPT"),
    (("kv", "rm", "KEPT"), "Delete bucket KEPT"),
    (("kv", "purge", "KEPT", "k"), "Purge key KEPT > k"),
    (("kv", "compact", "KEPT"), "Remove all delete markers of KEPT"),
    (("object", "rm", "KEPT", "o"), "Delete object KEPT > o"),
    (("object", "rm", "KEPT"), "Delete bucket KEPT"),
    (("object", "seal", "KEPT"), "Really seal Bucket KEPT"),
    (("object", "put", "KEPT", "o"), "Replace existing object KEPT > o"),
    (("object", "get", "KEPT", "o"), "Overwrite o"),
    (("context", "rm", "kept"), 'Really delete context "kept"'),
    (("pub", "kept.typed", "--jetstream"), "Reading from standard input"),
]


@pytest.fixture
def kept(cli: Cli) -> Cli:
    """With one of each that must not be lost, all named KEPT."""
    asyncio.run(_make(cli.url))
    (cli.home / "o").write_text("second")
    contexts = cli.home / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "kept.json").write_text('{"url": "nats://nowhere:4222"}')
    return cli


async def _make(url: str) -> None:
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        for name in ("KEPT", "KV_KEPT", "OBJ_KEPT"):
            with suppress(slipstream.Error):
                await js.delete_stream(name)
        stream = await js.create_stream(name="KEPT", subjects=["kept.>"], storage="memory")
        await js.publish("kept.1", b"m1")
        await js.publish("kept.2", b"m2")
        await stream.create_consumer(durable_name="c")
        await (await js.create_key_value(bucket="KEPT", storage="memory")).put("k", b"v")
        store = await js.create_object_store(bucket="KEPT", storage="memory")
        await store.put("o", b"first")


async def _everything(cli: Cli) -> dict[str, Any]:
    async with await slipstream.connect(cli.url) as nc:
        js = nc.jetstream()
        streams = [info async for info in js.streams()]
        return {
            "streams": [(info.config, info.state) for info in streams],
            "consumers": [info.config async for info in js.consumers("KEPT")],
            "key": (await (await js.key_value("KEPT")).get("k")).data,
            "object": await (await js.object_store("KEPT")).get("o"),
            "file": (cli.home / "o").read_text(),
            "contexts": sorted((cli.home / "nats" / "context").iterdir()),
        }


@pytest.mark.timeout(600)
def test_ctrl_c_at_a_question_ends_the_command_and_a_later_yes_counts_for_nothing(
    kept: Cli,
) -> None:
    before = asyncio.run(_everything(kept))
    for words, question in QUESTIONS:
        done = kept.interrupted(*words, at=question)
        assert done.status == INTERRUPTED, f"{words}: {done.out}"
        assert "Traceback" not in done.out
    assert asyncio.run(_everything(kept)) == before


MISSING = [
    (("stream", "rm", "NOPE"), "stream not found"),
    (("stream", "seal", "NOPE"), "stream not found"),
    (("stream", "purge", "NOPE"), "stream not found"),
    (("stream", "rmm", "KEPT", "77"), "no message found"),
    (("consumer", "rm", "KEPT", "nope"), "consumer not found"),
    (("consumer", "pause", "KEPT", "nope", "1h"), "consumer not found"),
    (("consumer", "resume", "KEPT", "nope"), "consumer not found"),
    (("consumer", "unpin", "KEPT", "nope", "g"), "consumer not found"),
    (("kv", "rm", "NOPE"), "NOPE"),
    (("kv", "del", "NOPE"), "NOPE"),
    (("kv", "del", "KEPT", "nope"), "nope"),
    (("kv", "purge", "KEPT", "nope"), "nope"),
    (("kv", "compact", "NOPE"), "NOPE"),
    (("object", "rm", "NOPE"), "NOPE"),
    (("object", "rm", "KEPT", "nope"), "nope"),
    (("object", "seal", "NOPE"), "NOPE"),
    (("context", "rm", "nope"), "nope"),
]


def test_nobody_is_asked_about_what_is_not_there(kept: Cli) -> None:
    for words, missing in MISSING:
        shown = kept.on_terminal(*words, answers="y\n")
        assert shown.status == 1, shown.out
        assert missing in shown.out, shown.out
        assert "[y/N]" not in shown.out
