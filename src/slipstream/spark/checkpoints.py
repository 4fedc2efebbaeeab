"""How far queries have read, from their checkpoints: no Spark is needed to look.

A declarative pipeline keeps one checkpoint per flow below its storage:

    <storage>/_checkpoints/<sink>/<flow>/<version>/{metadata,offsets/,commits/}
    <storage>/_checkpoints/<catalog>/<database>/<table>/<flow>/<version>/...

A full refresh begins a new version. `offsets/<batch>` is written before a batch is run, and says
with one line for each source how far it reads; `commits/<batch>` when it is done. Our offsets are
those of `slipstream.spark.source.offsets`; those of other sources are passed over.
"""

import re
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

ROOT = "_checkpoints"
_DEPTH_MAX = 6  # catalog, database, table, flow, version; and their root


class Reading(msgspec.Struct, frozen=True):
    """How far one stream was read: `next` is the first sequence that was not."""

    stream: str
    next: int
    created: str = ""


class Flow(msgspec.Struct, frozen=True):
    """A flow of a pipeline: what it writes to, and what its last finished batch has read.

    `batches` have been finished; `is_unfinished` says that one more was begun.
    """

    name: str
    dataset: str
    query_id: str
    version: int
    batches: int
    is_unfinished: bool
    readings: list[Reading]


def flows(storage: str) -> list[Flow]:
    """The flows that have run, by dataset and name.

    `storage` is a URI (file, s3, gs, hdfs ...). Raises `ConfigError` if it cannot be read.
    """
    try:
        from pyarrow.fs import FileSystem
    except ImportError as error:
        raise ConfigError("PyArrow is not installed: pip install 'slipstream[spark]'") from error
    try:
        system, path = FileSystem.from_uri(storage)
        found = [
            _flow(system, versions, max(versions))
            for versions in _queries(system, f"{path.rstrip('/')}/{ROOT}", 0)
        ]
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"the pipeline's storage {storage} cannot be read: {error}") from error
    return sorted(found, key=lambda flow: (flow.dataset, flow.name))


def _queries(system: "FileSystem", path: str, depth: int) -> list[dict[int, str]]:
    """The versions of each query below a directory."""
    folders = _folders(system, path)
    versions = {int(name): folder for name, folder in folders.items() if name.isdigit()}
    checkpoints = {
        number: folder
        for number, folder in versions.items()
        if "offsets" in _folders(system, folder)
    }
    if checkpoints:
        return [checkpoints]
    if depth >= _DEPTH_MAX:
        return []
    return [query for folder in folders.values() for query in _queries(system, folder, depth + 1)]


def _flow(system: "FileSystem", versions: dict[int, str], version: int) -> Flow:
    folder = versions[version]
    parts = folder.split("/")
    dataset = parts[parts.index(ROOT, len(parts) - _DEPTH_MAX - 1) + 1 : -2]
    begun, done = _batches(system, f"{folder}/offsets"), _batches(system, f"{folder}/commits")
    readings = readings_in(_text(system, f"{folder}/offsets/{done[-1]}")) if done else []
    metadata = msgspec.json.decode(_text(system, f"{folder}/metadata") or "{}", type=dict[str, Any])
    return Flow(
        name=parts[-2],
        dataset=".".join(dataset),
        query_id=str(metadata.get("id", "")),
        version=version,
        batches=done[-1] + 1 if done else 0,
        is_unfinished=bool(begun) and begun[-1:] != done[-1:],
        readings=readings,
    )


def readings_in(text: str) -> list[Reading]:
    """The offsets of our source: a JSON object on one line, of streams with `next` in it."""
    found = []
    for line in text.splitlines()[2:]:
        try:
            streams = msgspec.json.decode(line, type=dict[str, _Entry])
        except msgspec.MsgspecError:
            continue
        found += [Reading(name, entry.next, entry.created) for name, entry in streams.items()]
    return found


class _Entry(msgspec.Struct, frozen=True):
    next: int
    created: str


def _folders(system: "FileSystem", path: str) -> dict[str, str]:
    from pyarrow.fs import FileSelector, FileType

    entries = system.get_file_info(FileSelector(path, allow_not_found=True))
    return {found.base_name: found.path for found in entries if found.type == FileType.Directory}


def _batches(system: "FileSystem", path: str) -> list[int]:
    from pyarrow.fs import FileSelector

    entries = system.get_file_info(FileSelector(path, allow_not_found=True))
    return sorted(int(e.base_name) for e in entries if re.fullmatch(r"\d+", e.base_name))


def _text(system: "FileSystem", path: str) -> str:
    try:
        with system.open_input_stream(path) as file:
            return str(file.read().decode())
    except FileNotFoundError:
        return ""
