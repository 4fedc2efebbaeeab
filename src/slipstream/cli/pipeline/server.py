"""The server of a pipeline: the one that was named, or an embedded one for development.

The embedded server keeps its streams in the project (``.slipstream/store``). While it runs, its URL
stands in ``.slipstream/url``, so that `slipstream pipeline status` finds it during a run. It makes
the streams of ``streams/*.json`` that are not there, and publishes ``streams/messages.jsonl`` into
a new store.
"""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from slipstream.cli.config_options import read_config
from slipstream.cli.output import note
from slipstream.cli.pipeline.project import Project
from slipstream.cli.session import Settings, settings
from slipstream.errors import ConfigError, Error

Options = dict[str, str]
_FIELDS = {
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "credentials",
    "nkey": "nkeySeed",
    "tlscert": "tlsCertificate",
    "tlskey": "tlsKey",
    "tlsca": "tlsCa",
    "inbox_prefix": "inboxPrefix",
    "js_domain": "domain",
}
_FILES = ("creds", "nkey", "tlscert", "tlskey", "tlsca")


class _Sample(msgspec.Struct):
    """One line of messages.jsonl; data that is no text is published as JSON."""

    subject: str
    data: Any = ""


@contextmanager
def server_of(project: Project) -> Iterator[Options]:
    """The options of the connection for source and sink, while the server is there."""
    asked = settings()
    if asked.server:
        yield _options(asked)
        return
    running = _running(project)
    if running:
        yield {"servers": running}
        return
    with _embedded(project) as url:
        yield {"servers": url}


def _options(asked: Settings) -> Options:
    if asked.js_api_prefix and not asked.js_domain:
        raise ConfigError("pipelines take no --js-api-prefix: give the domain with --js-domain")
    options = {"servers": asked.server}
    for field, option in _FIELDS.items():
        value = getattr(asked, field)
        if value and field in _FILES:
            value = str(Path(value).expanduser().absolute())  # the code runs in another folder
        if value:
            options[option] = value
    if asked.tlsfirst:
        options["tlsHandshakeFirst"] = "true"
    return options


def _running(project: Project) -> str:
    """The URL of the development server of another run; "" if there is none."""
    try:
        url = (project.state / "url").read_text().strip()
    except FileNotFoundError:
        return ""
    try:
        asyncio.run(_greet(url))
    except Error:
        return ""  # it was killed, and has left its file
    return url


async def _greet(url: str) -> None:
    from slipstream.client import connect

    async with await connect([url], connect_timeout=1.0):
        pass


@contextmanager
def _embedded(project: Project) -> Iterator[str]:
    from slipstream.server import Server

    logging.getLogger("slipstream.server").setLevel(logging.ERROR)
    store = project.state / "store"
    is_new = not store.exists()
    try:
        server = Server(store_dir=str(store)).start()
    except Error as error:
        raise ConfigError(
            f"the development server cannot start: {error}. If one runs there already "
            "(`slipstream serve`), name it: --server nats://127.0.0.1:4222"
        ) from error
    address = project.state / "url"
    try:
        asyncio.run(_fill(server.url, project, is_new))
        is_new = False
        address.write_text(server.url + "\n")
        yield server.url
    finally:
        address.unlink(missing_ok=True)
        server.stop()
        if is_new:  # half filled: the next run has to begin with an empty one
            shutil.rmtree(store, ignore_errors=True)


async def _fill(url: str, project: Project, is_new: bool) -> None:
    """Make the project's streams that are not there; in a new store publish its messages."""
    from slipstream.client import connect
    from slipstream.client.jetstream import StreamConfig

    folder = project.folder / "streams"
    samples = _samples(folder / "messages.jsonl") if is_new else []
    made = []
    async with await connect([url], name="slipstream pipeline") as nc:
        js = nc.jetstream()
        there = set() if is_new else {name async for name in js.stream_names()}
        for path in sorted(folder.glob("*.json")):
            config = read_config(path, StreamConfig)
            if config.name not in there:
                made.append((await js.create_stream(config)).name)
        for sample in samples:
            text = sample.data if isinstance(sample.data, str) else None
            data = msgspec.json.encode(sample.data) if text is None else text.encode()
            await js.publish(sample.subject, data)
    if made:
        filled = f"; published {len(samples)} sample messages" if samples else ""
        note(f"Made the streams {', '.join(made)}{filled}")


def _samples(path: Path) -> list[_Sample]:
    try:
        return msgspec.json.Decoder(_Sample).decode_lines(path.read_bytes())
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{path} cannot be read: {error}. Each line is an object with a subject and data"
        ) from error
