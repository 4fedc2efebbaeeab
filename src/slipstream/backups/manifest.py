"""What a place holds: parts and runs, of one stream, by the generations of it.

A stream that is deleted and made anew, or set back to an earlier state of its disk, begins another
generation: its sequences mean other messages, and parts of two generations are never mixed.

The manifest is an object of its own for each change, `manifests/<number>`. Who has read number n
writes n + 1, on the condition that nobody else has: of two runs at once one comes to nothing.
"""

import hashlib
import re
import secrets
from contextlib import suppress

import msgspec

from slipstream.backups.stores import Store
from slipstream.client.jetstream.errors import BackupError
from slipstream.errors import CorruptionError

FORMAT = 1
FOLDER = "manifests/"
KEPT = 5  # manifests before the one in force, for who is just reading them
_NUMBER_DIGITS = 12
_ANCESTORS = 64
_NAME = re.compile(r"(parts|runs)/[0-9a-f-]+")


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """An object with the messages of one stretch of sequences. Times in ns, sizes in bytes."""

    name: str
    first_seq: int
    last_seq: int
    last_ts: int
    messages: int
    content_bytes: int  # before they are compressed
    size: int  # of the object
    sha256: str


class Run(msgspec.Struct, kw_only=True, frozen=True):
    """What one run has found; `name` is the object that says it all."""

    name: str
    size: int
    sha256: str
    time: int  # ns, of the server's clock
    first_seq: int
    last_seq: int
    messages: int  # that the stream had
    added: int  # messages that the run has brought
    knows_gaps: bool  # False: which messages are removed was too much to ask for


class Generation(msgspec.Struct, kw_only=True):
    """A stream from its creation on: parts by sequence, runs by time."""

    created: int  # ns
    parts: list[Part] = []
    runs: list[Run] = []


class Manifest(msgspec.Struct, kw_only=True):
    """All that a place holds; generations by time, each with a run or more."""

    stream: str
    number: int = 0
    id: str = ""
    ancestors: list[str] = []  # ids of those that it followed, the latest ones
    generations: list[Generation] = []

    @property
    def objects(self) -> set[str]:
        """The names of all objects that count."""
        found = {part.name for generation in self.generations for part in generation.parts}
        return found | {run.name for generation in self.generations for run in generation.runs}


class _Sealed(msgspec.Struct, kw_only=True):
    format: int
    sha256: str
    manifest: msgspec.Raw


def digest(data: bytes) -> str:
    """The SHA-256 of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _path(number: int) -> str:
    return f"{FOLDER}{number:0{_NUMBER_DIGITS}}.json"


async def load(store: Store) -> Manifest | None:
    """The manifest in force; None where there is none. Raises `BackupError`, `CorruptionError`."""
    names = await store.names(FOLDER)
    return decode(names[-1], await store.get(names[-1])) if names else None


def decode(name: str, data: bytes) -> Manifest:
    """A manifest as it was written. Raises `CorruptionError`, `BackupError` for a newer format."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if sealed.format > FORMAT:
            raise BackupError(
                f"{name}: the backup has format {sealed.format}, and this version reads {FORMAT}: "
                "use a newer one"
            )
        raw = bytes(sealed.manifest)
        if digest(raw) != sealed.sha256:
            raise CorruptionError(f"{name} is damaged: its checksum does not match")
        manifest = msgspec.json.decode(raw, type=Manifest)
        if not all(map(_NAME.fullmatch, manifest.objects)):
            raise CorruptionError(f"{name} names an object that cannot be")
        return manifest
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"{name} is damaged: {error}") from error


async def commit(store: Store, manifest: Manifest) -> None:
    """Put the manifest that follows number `manifest.number` in force, which gets that number.
    Raises `BackupError` if another one was put in force meanwhile."""
    taken = BackupError(
        f"backup place {store}: another run has written to it meanwhile, and this one has changed "
        "nothing: run it again"
    )
    manifest.ancestors = [*manifest.ancestors, manifest.id][-_ANCESTORS:]
    manifest.number += 1
    manifest.id = secrets.token_hex(8)
    raw = msgspec.json.encode(manifest)
    sealed = _Sealed(format=FORMAT, sha256=digest(raw), manifest=msgspec.Raw(raw))
    if not await store.put_new(_path(manifest.number), msgspec.json.encode(sealed)):
        raise taken
    # Its number may have been free because it was tidied away: then a higher one is in force.
    found = await load(store)
    if found is None or manifest.id not in (found.id, *found.ancestors):
        with suppress(BackupError):
            await store.delete([_path(manifest.number)])
        raise taken


async def tidy(store: Store, manifest: Manifest) -> None:
    """Delete manifests that are long out of force, where that is allowed."""
    with suppress(BackupError):  # a place may be one where nothing can be deleted
        names = await store.names(FOLDER)
        await store.delete([one for one in names if one < _path(manifest.number - KEPT)])
