"""Where backups lie: a directory, or an object store that `obstore` knows.

A store holds objects that are written once: `put_new` never replaces one, which is all that keeps
two runs at the same place apart. A directory needs no package; its objects are on disk when
`put_new` returns.
"""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Any, Protocol

from slipstream.client.jetstream.errors import BackupError
from slipstream.errors import ConfigError

UNFINISHED = "unfinished/"  # files that are being written, or were when a run broke


class Store(Protocol):
    """Objects by name; names have slashes. All methods raise `BackupError` for what they cannot."""

    async def put_new(self, name: str, data: bytes) -> bool:
        """Store an object, whole or not at all; False if there is one of that name."""

    async def get(self, name: str) -> bytes:
        """An object's content."""

    async def names(self, prefix: str) -> list[str]:
        """The names below `prefix`, which ends in a slash or is empty, sorted."""

    async def delete(self, names: list[str]) -> None:
        """Delete objects; one that is not there is no error."""

    def below(self, prefix: str) -> "Store":
        """The store of what is below `prefix`."""


class DirectoryStore:
    """Objects as files below a directory, which is made if need be."""

    def __init__(self, root: "str | os.PathLike[str]") -> None:
        self._root = Path(root)

    def __str__(self) -> str:
        return str(self._root)

    def below(self, prefix: str) -> "DirectoryStore":
        """The store of what is below `prefix`."""
        return DirectoryStore(self._root / prefix)

    async def put_new(self, name: str, data: bytes) -> bool:
        """Write and sync a file of another name, and link it to its own."""
        return await asyncio.to_thread(self._put_new, name, data)

    def _put_new(self, name: str, data: bytes) -> bool:
        path = self._root / name
        unfinished = self._root / UNFINISHED / secrets.token_hex(8)
        try:
            self._make(path.parent)
            self._make(unfinished.parent)
        except OSError as error:
            raise self._failed(f"{path.parent} cannot be made", error) from error
        try:
            try:
                with unfinished.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(unfinished, path)
            finally:
                unfinished.unlink(missing_ok=True)
            _sync(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._failed(f"{name} cannot be written", error) from error
        return True

    def _make(self, directory: Path) -> None:
        """Make a directory and those above it, durably."""
        if not directory.is_dir():
            self._make(directory.parent)
            directory.mkdir(exist_ok=True)
            _sync(directory.parent)

    async def get(self, name: str) -> bytes:
        """Read a file."""
        try:
            return await asyncio.to_thread((self._root / name).read_bytes)
        except OSError as error:
            raise self._failed(f"{name} cannot be read", error) from error

    async def names(self, prefix: str) -> list[str]:
        """The files below a directory; none if it does not exist."""
        return await asyncio.to_thread(self._names, prefix)

    def _names(self, prefix: str) -> list[str]:
        found = []
        try:
            for path in (self._root / prefix).rglob("*"):
                if path.is_file():
                    found.append(path.relative_to(self._root).as_posix())
        except OSError as error:
            raise self._failed("it cannot be listed", error) from error
        return sorted(found)

    async def delete(self, names: list[str]) -> None:
        """Remove files."""
        await asyncio.to_thread(self._delete, names)

    def _delete(self, names: list[str]) -> None:
        try:
            for name in names:
                (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(f"{name} cannot be deleted", error) from error

    def _failed(self, what: str, error: OSError) -> BackupError:
        return BackupError(f"backup place {self}: {what}: {error}")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStore:
    """Objects in a store of `obstore`: ``ObjectStore(obstore.store.MemoryStore())``."""

    def __init__(self, store: Any, prefix: str = "", called: str = "") -> None:
        self._store = store
        self._prefix = prefix
        self._called = called or str(store)

    def __str__(self) -> str:
        return self._called

    def below(self, prefix: str) -> "ObjectStore":
        """The store of what is below `prefix`."""
        return ObjectStore(self._store, f"{self._prefix}{prefix}/", f"{self._called}/{prefix}")

    async def put_new(self, name: str, data: bytes) -> bool:
        """Put an object on the condition that there is none. One request: an object of several
        parts could not have that condition everywhere."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            await obstore.put_async(
                self._store, self._prefix + name, data, mode="create", use_multipart=False
            )
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise self._failed(f"{name} cannot be written", error) from error
        return True

    async def get(self, name: str) -> bytes:
        """Get an object."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = await obstore.get_async(self._store, self._prefix + name)
            return bytes(await found.bytes_async())
        except (BaseError, OSError) as error:
            raise self._failed(f"{name} cannot be read", error) from error

    async def names(self, prefix: str) -> list[str]:
        """List objects."""
        import obstore
        from obstore.exceptions import BaseError

        whole = self._prefix + prefix
        try:
            listing = obstore.list(self._store, whole.rstrip("/") or None)
            found = [entry["path"] async for page in listing for entry in page]
        except (BaseError, OSError) as error:
            raise self._failed("it cannot be listed", error) from error
        return sorted(one.removeprefix(self._prefix) for one in found)

    async def delete(self, names: list[str]) -> None:
        """Delete objects."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            for name in names:
                try:
                    await obstore.delete_async(self._store, self._prefix + name)
                except FileNotFoundError:
                    continue
        except (BaseError, OSError) as error:
            raise self._failed("objects cannot be deleted", error) from error

    def _failed(self, what: str, error: Exception) -> BackupError:
        said = str(error).partition("\n\nDebug source:")[0]
        return BackupError(f"backup place {self}: {what}: {said}")


def is_url(place: str) -> bool:
    """Whether `place` names an object store, not a directory."""
    return "://" in place


def open_store(place: "str | os.PathLike[str]") -> Store:
    """The store of a directory, or of a URL like ``s3://bucket/path``, ``gs://``, ``az://`` or
    ``file://``; its credentials are in the environment, as the cloud's own tools have them. Raises
    `ConfigError`, also where `obstore` is not installed."""
    text = os.fspath(place)
    if not is_url(text):
        return DirectoryStore(text)
    if text.startswith("file://"):
        return DirectoryStore(text.removeprefix("file://"))
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise ConfigError(
            f"backup place {text}: object stores need obstore, which is not installed: "
            "pip install 'slipstream[objectstore]'"
        ) from error
    try:
        return ObjectStore(from_url(text), called=text.rstrip("/"))
    except (BaseError, ValueError) as error:
        said = str(error).partition("\n\nDebug source:")[0]
        raise ConfigError(
            f"backup place {text}: {said}; write a directory, or s3://, gs:// or az:// with a "
            "bucket and a path"
        ) from error
