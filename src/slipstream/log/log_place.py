"""Where a store's commit log lies: in the store directory, or in one of its own on another disk.

    <store_dir>/commit-log/0.log, 1.log          the log, where nothing else is configured
    <store_dir>/commit-log/elsewhere             or: the directory that has it, and an id ("" for
                                                 the directory: it is in the store again)
    <store_dir>/commit-log/0.log                 ... beside a file that earlier versions refuse
    <log_dir>/commit-log/0.log, 1.log, owner     the log, the store that it belongs to, and the id

A store never starts without its log. Where the configuration names another place than the store
does, the log is moved there first: it is copied, durably, before `elsewhere` is replaced, which
decides. A log that is not where it was, or that belongs to another store, is an
error that says so.
"""

import os
from typing import TypeVar

import msgspec

from slipstream.errors import StorageError
from slipstream.log.commit_entry import Head
from slipstream.log.disk import Disk, write_file

DIRECTORY = "commit-log"
FILES = ("0.log", "1.log")
_POINTER, _OWNER = "elsewhere", "owner"
T = TypeVar("T")

_STAGED = ".new"
_REFUSED_VERSION = (1 << 32) - 1  # no earlier version reads it, and so none begins a log of its own


class _Pointer(msgspec.Struct):
    """Of a store: where its log is."""

    directory: str  # "": in the store
    id: str


class _Owner(msgspec.Struct):
    """Of a log outside of its store: whose it is."""

    store: str
    id: str


def find_log(disk: Disk, root: str) -> str:
    """The directory that has the log of the store in `root`, which is there. Raises OSError,
    `StorageError`."""
    home = f"{root}/{DIRECTORY}"
    pointer = _read(disk, f"{home}/{_POINTER}", _Pointer)
    if pointer is None or not pointer.directory:
        return home
    owner = _read(disk, f"{pointer.directory}/{_OWNER}", _Owner)
    if owner is None:
        raise StorageError(
            f"the commit log of the store in {root} lies in {pointer.directory}, and is not there: "
            "without it the store would lack what was answered last; bring that disk or directory "
            "back"
        )
    here = os.path.abspath(root)
    if owner.id != pointer.id:
        raise StorageError(
            f"the commit log in {pointer.directory} belongs to another store, in {owner.store}; "
            f"the store in {here} has had its own there: bring that back"
        )
    if owner.store != here:
        raise StorageError(
            f"the commit log in {pointer.directory} belongs to the store in {owner.store}, not to "
            f"that in {here}: if the store was moved, put its new place into "
            f"{pointer.directory}/{_OWNER}; if this is a copy of it, copy {' and '.join(FILES)} "
            f"from there into {home} and remove {home}/{_POINTER}"
        )
    return pointer.directory


def place_log(disk: Disk, root: str, log_dir: str) -> str:
    """The directory that has the log of the store in `root`, after it was moved to `log_dir` if it
    was elsewhere ("": into the store). Blocks; raises OSError, `StorageError`."""
    home = f"{root}/{DIRECTORY}"
    disk.makedirs(home)
    found = find_log(disk, root)
    is_home = not log_dir or os.path.abspath(log_dir) == os.path.abspath(root)
    wanted = home if is_home else f"{os.path.abspath(log_dir)}/{DIRECTORY}"
    if found != wanted:
        _move(disk, root, found, wanted)
    if wanted != home:
        _refuse_earlier_versions(disk, home)
    return wanted


def _move(disk: Disk, root: str, found: str, wanted: str) -> None:
    home = f"{root}/{DIRECTORY}"
    pointer = _read(disk, f"{home}/{_POINTER}", _Pointer)
    if pointer is None:  # the store has its id before any other place does
        pointer = _Pointer("", disk.random_bytes(16).hex())
        _write(disk, home, _POINTER, pointer)
    if wanted != home:
        _claim(disk, wanted, _Owner(os.path.abspath(root), pointer.id))
    for name in FILES:
        if disk.exists(f"{found}/{name}"):
            write_file(disk, f"{wanted}/{name}", disk.read(f"{found}/{name}"))
        else:
            disk.remove(f"{wanted}/{name}")
    disk.sync_dir(wanted)
    _write(disk, home, _POINTER, _Pointer("" if wanted == home else wanted, pointer.id))
    if found != home:
        for name in (*FILES, _OWNER):
            disk.remove(f"{found}/{name}")


def _claim(disk: Disk, wanted: str, owner: _Owner) -> None:
    """Say in a directory whose log is to come there. Raises `StorageError` if it has another's."""
    disk.makedirs(wanted)
    there = _read(disk, f"{wanted}/{_OWNER}", _Owner)
    has_log = any(disk.exists(f"{wanted}/{name}") for name in FILES)
    if has_log and there is None:
        raise StorageError(
            f"{wanted} has a commit log, and nothing says of which store: name another log_dir, or "
            "move those files away"
        )
    if there is not None and there.id != owner.id and has_log:
        raise StorageError(
            f"{wanted} has the commit log of a store in {there.store}, which is not the store that "
            f"{owner.store} has now: name another log_dir, or remove {wanted} if the other one is "
            "gone for good"
        )
    _write(disk, wanted, _OWNER, owner)


def _refuse_earlier_versions(disk: Disk, home: str) -> None:
    """What is left of a log in the store goes, and what takes its place is read by nobody."""
    stub = Head(0, 0, _REFUSED_VERSION).encode()
    path = f"{home}/{FILES[0]}"
    if not disk.exists(path) or disk.read(path) != stub:
        _replace(disk, home, FILES[0], stub)
    disk.remove(f"{home}/{FILES[1]}")


def _read(disk: Disk, path: str, kind: type[T]) -> T | None:
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError(
            f"{path} is damaged, so nobody knows which commit log belongs to which store: {error}; "
            "it is to name both, see docs/storage.md"
        ) from error


def _write(disk: Disk, directory: str, name: str, content: msgspec.Struct) -> None:
    _replace(disk, directory, name, msgspec.json.encode(content) + b"\n")


def _replace(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Durably, as a whole or not at all."""
    staged = f"{directory}/{name}{_STAGED}"
    write_file(disk, staged, content)
    disk.rename(staged, f"{directory}/{name}")
    disk.sync_dir(directory)
