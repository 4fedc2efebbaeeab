"""Files that nobody but their owner may read: 0600, in directories of 0700."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slipstream.cli.prompts import confirm
from slipstream.errors import ConfigError


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def write(path: Path, text: str | bytes) -> None:
    """Write a file so that it has either its old content or its new one, whatever happens."""
    data = text.encode() if isinstance(text, str) else text
    if path.exists() and not path.is_file():  # a terminal, a pipe
        path.write_bytes(data)
        return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else who asks for this changes the files of a directory, which is there, meanwhile."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks, where commands come one by one
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_asked(path: Path, text: str | bytes, force: bool) -> None:
    """Write a file that the line names; one that is there is replaced only if that is agreed."""
    if path.is_file():
        confirm(f"Really overwrite {path}?", force)
    write(path, text)


def read(path: Path, what: str) -> str:
    """The text of a file. Raises `ConfigError` if there is none, or it is no text."""
    try:
        return path.read_text()
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path} with {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} cannot be read from {path}: {error}") from error
