"""`slipstream stream backup|restore`: a stream's snapshot in a directory (jetstream-api.md 8).

The server sends chunks to a subject of ours, and waits for an answer to each; the end is an empty
message. Restoring goes the other way. The directory holds `backup.json`, the configuration and
state, and `stream.tar.s2`, as the `nats` tool writes them.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.output import note, print_json
from slipstream.cli.progress import bytes_bar
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import show_size
from slipstream.client.jetstream.context import JetStream
from slipstream.client.message import Message
from slipstream.errors import ConfigError

app = new_app()

META, DATA = "backup.json", "stream.tar.s2"
CHUNK_BYTES = 128 * 1024
SILENCE_SECONDS = 10.0

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream")]


@command(app, "backup")
async def backup(
    name: Name,
    target: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to; made if need be")],
    consumers: Annotated[bool, typer.Option("--consumers/--no-consumers", help="Too")] = True,
    check: Annotated[bool, typer.Option("--check", help="Check every message first")] = False,
) -> None:
    """Write a stream with its consumers to a directory."""
    if (target / DATA).exists():
        raise ConfigError(f"stream backup: {target} holds a backup already")
    async with jetstream() as js:
        inbox = js.connection.new_inbox()
        chunks: asyncio.Queue[Message] = asyncio.Queue()
        await js.connection.subscribe(inbox, handler=chunks.put_nowait)
        body = {"deliver_subject": inbox, "no_consumers": not consumers, "jsck": check}
        found = await js.api.request(f"STREAM.SNAPSHOT.{name}", body)
        target.mkdir(parents=True, exist_ok=True)
        size = int(found.get("state", {}).get("bytes", 0))
        written = await _receive(js, chunks, target / (DATA + ".part"), size)
    (target / META).write_bytes(msgspec.json.encode(found))
    (target / (DATA + ".part")).replace(target / DATA)
    _tell(f"Wrote {show_size(written)} of stream {name} to {target}", found, written)


async def _receive(js: JetStream, chunks: "asyncio.Queue[Message]", path: Path, size: int) -> int:
    written = 0
    with bytes_bar("Backing up") as bar, path.open("wb") as file:
        task = bar.add_task("", total=size or None)
        while True:
            try:
                message = await asyncio.wait_for(chunks.get(), SILENCE_SECONDS)
            except TimeoutError:
                raise ConfigError("stream backup: the server has stopped sending") from None
            if not message.data:
                if message.status >= 400:
                    raise ConfigError(f"stream backup: the server gave up: {message.description}")
                return written
            file.write(message.data)
            written += len(message.data)
            bar.update(task, completed=written)
            if message.reply:
                await js.connection.publish(message.reply)


@command(app, "restore")
async def restore(
    source: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A backup")],
    name: Annotated[str, typer.Option("--name", help="Not its old name, but this")] = "",
) -> None:
    """Make a stream again from a backup."""
    try:
        meta: dict[str, Any] = msgspec.json.decode((source / META).read_bytes())
        size = (source / DATA).stat().st_size
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"stream restore: {source} is no backup: {error}") from error
    config = meta["config"]
    name = name or config["name"]
    config["name"] = name
    async with jetstream() as js:
        answer = await js.api.request(
            f"STREAM.RESTORE.{name}", {"config": config, "state": meta["state"]}
        )
        subject = answer["deliver_subject"]
        with bytes_bar("Restoring") as bar, (source / DATA).open("rb") as file:
            task = bar.add_task("", total=size)
            while chunk := file.read(CHUNK_BYTES):
                await js.connection.request(subject, chunk, timeout=SILENCE_SECONDS)
                bar.advance(task, len(chunk))
        done = await js.connection.request(subject, b"", timeout=60)
        result = msgspec.json.decode(done.data)
        if result.get("error"):
            raise ConfigError(f"stream restore: {result['error'].get('description')}")
    _tell(f"Restored stream {name}, {show_size(size)}", meta, size)


def _tell(text: str, meta: dict[str, Any], size: int) -> None:
    if wants_json():
        print_json({"config": meta["config"], "state": meta["state"], "bytes": size})
    else:
        note(text)
