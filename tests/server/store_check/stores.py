"""Stores with something in them, made by a server, and ways to damage them."""

from pathlib import Path

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from slipstream import Server

MESSAGES = 200


def body_of(seq: int) -> bytes:
    """What message `seq` of stream S holds."""
    return b"%d " % seq * 50


async def make_store(directory: Path) -> None:
    """A stream S of which some messages were removed, a compressed work queue Q, and consumers."""
    async with Server(store_dir=str(directory)) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        queue = StreamConfig(
            name="Q", subjects=["q"], retention=RetentionPolicy.WORK_QUEUE, compression="s2"
        )
        await js.add_stream(queue)
        await js.add_stream(name="M", subjects=["m"], storage=StorageType.MEMORY)
        for seq in range(1, MESSAGES + 1):
            headers = {"Number": str(seq)} if seq % 2 else None
            await js.publish(f"s.{seq % 3}", body_of(seq), headers=headers)
            if seq <= 10:
                await js.publish("q", b"work " * 100)
        for seq in (1, 2, 50, 51, 90):
            await js.delete_msg("S", seq)
        reader = await js.pull_subscribe("s.>", "C", stream="S")
        for message in (await reader.fetch(20))[:10]:
            await message.ack_sync()
        await js.add_consumer("Q", ConsumerConfig(durable_name="D"))
        worker = await js.pull_subscribe_bind("D", "Q")
        for message in await worker.fetch(3):
            await message.ack_sync()
        await client.close()


def segments(directory: Path, stream: str) -> list[Path]:
    """The segment files of a stream."""
    return sorted((directory / "jetstream" / "$G" / stream / "msgs").glob("*.seg"))


def break_bytes(path: Path, what: bytes) -> None:
    """Damage the first place where a file has `what`."""
    data = bytearray(path.read_bytes())
    at = data.index(what)
    data[at] ^= 0xFF
    path.write_bytes(data)


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
