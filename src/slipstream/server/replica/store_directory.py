"""The files of a store, as the committed entries of the group have made them.

    <directory>/files/...        the store, which the engine of a leader opens
    <directory>/applied.0, .1    up to which entry it is durable; the newer one that is whole counts
    <directory>/checkpoint/      names of the files as they were at an entry, while they are copied
    <directory>/incoming/        files that come from another server, until all are there ...
    <directory>/earlier/         ... and those of an attempt that broke
    <directory>/replaced/        the store that they take the place of, for a moment

Entries are applied in order. What they wrote is synced now and then (`keep`) and not with each of
them: the group's log has it. After a crash the entries behind the one that is noted are applied
once more, which changes nothing where it had been done, since an operation says what a file holds
afterwards. Only a rename is not like that: the old name may be used anew after it. So all is made
durable and noted before a rename and after it, and no other entry is applied once more with it.

So files may be ahead of the entry that is noted: have some of what the later ones say that were
applied before a crash. They may be sent to another server like that, which notes up to where it may
be so, and applies those entries in the same way.

On a full disk `apply` and `keep` raise `DiskFullError`, and may be called again once there is
space: an entry of which a part was done is done anew, and what was to be noted was not.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from slipstream.errors import CorruptionError, DiskFullError, StorageError
from slipstream.group import Entry
from slipstream.log.disk import File, write_file
from slipstream.log.durability import Touched, is_final
from slipstream.log.os_file import full_or
from slipstream.server.replica.operations import Kind, Operation, decode_operations, is_rename
from slipstream.server.replica.store_copy import (
    Arriving,
    Changes,
    CopyingDisk,
    Held,
    NotHeldError,
    Snapshot,
    link_tree,
)
from slipstream.wire.checksum import crc32

OPEN_MAX = 512  # files that are kept open to be written to
SPACE_BYTES = 8 * 1024 * 1024  # without so many free a disk that was full is full still
_COPIES = ("applied.0", "applied.1")


class Applied(msgspec.Struct, frozen=True):
    """What is noted of a store; `number` says which of two copies is the newer one."""

    number: int = 0
    index: int = 0  # of the last entry that is durable in the files, with all before it
    clients: dict[str, str] = {}  # by the name of a server that has led: where clients found it
    tokens: dict[str, str] = {}  # ... and with what others prove that they bring clients there
    is_doubtful: bool = False  # the files may not be those of this entry: all are to be replaced
    ahead: int = 0  # index up to which they may have some of what later entries say
    refusing: list[str] = []  # who would not lead over damage, since somebody did


class StoreDirectory:
    """See the module's text. `log_end` is the last index that the group's log may have had when the
    process before this one ended. Calls block; they raise OSError and `StorageError`.

    `apply` is for one thread, `keep` for another one.
    """

    def __init__(self, disk: CopyingDisk, path: str, log_end: int) -> None:
        self.path = path
        self.root = f"{path}/files"
        self._disk = disk
        self._incoming = f"{path}/incoming"
        self._earlier = f"{path}/earlier"
        self._replaced = f"{path}/replaced"
        self._snapshots = f"{path}/checkpoint"
        self._snapshot_number = 0
        if not disk.exists(self.root) and disk.exists(self._replaced):  # a crash came in between
            disk.rename(self._replaced, self.root)
        disk.makedirs(self.root)
        for left in (self._snapshots, self._incoming, self._earlier, self._replaced):
            disk.remove_tree(left)
        self.is_unknown = False  # up to which entry the files are those of the group
        self._noted = self._read()
        self.applied = self._noted.index
        # Index: entries behind it are applied for the first time.
        self._strict_after = max(log_end, self._noted.ahead)
        self._touched = Touched()
        self._is_broken = False
        self._half = 0  # index of the last entry that has failed, maybe half way
        self._changes = Changes(self.applied)
        # Whether files may be damaged, or be those of another entry than is noted: none of them is
        # held, and another server sends all of them.
        self.is_doubtful = self._noted.is_doubtful
        self._arriving: Arriving | None = None  # what comes from another server
        self._broken: Arriving | None = None  # ... and an attempt before, which broke
        self._resumed: Arriving | None = None  # the one of these whose files need not come again
        self._held = Held()  # what another server was told of all this
        self._files: dict[str, File] = {}  # that were written to, the latest last
        self._clients = dict(self._noted.clients)
        self._tokens = dict(self._noted.tokens)
        # Who would not lead over damage, since somebody did: their files are no better than these.
        self.refusing = frozenset(self._noted.refusing)  # replaced, and so read on any thread
        self._note_lock = threading.Lock()  # for renames and what is noted; taken before
        self._apply_lock = threading.RLock()  # the one for all else that entries do

    @property
    def durable(self) -> int:
        """The index up to which all is durable in the files."""
        return self._noted.index

    @property
    def clients(self) -> dict[str, str]:
        """Where clients found the servers that have led, by name."""
        return dict(self._clients)

    @property
    def tokens(self) -> dict[str, str]:
        """With what other servers prove to those that have led that they bring clients
        (`relay_proof`), by name."""
        return dict(self._tokens)

    # -- entries ---------------------------------------------------------------------------------

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No entry is applied, and nothing has another name, meanwhile. Blocks, also for a sync."""
        with self._note_lock, self._apply_lock:
            yield

    def apply_all(self, entries: Sequence[Entry]) -> None:
        """`apply` of several; those that have been applied are passed over."""
        for entry in entries:
            if entry.index > self.applied:
                self.apply(entry.index, entry.body)

    def apply_here(self, entries: Sequence[Entry]) -> bool:
        """The same, if it waits for no sync and nobody else; else False is the answer, and some may
        be left."""
        if any(is_rename(entry.body) for entry in entries):
            return False
        if not self._apply_lock.acquire(blocking=False):
            return False  # such as for a snapshot, which takes a while
        try:
            self.apply_all(entries)
        except OSError as error:
            if is_final(error):
                raise
            return False  # there are no descriptors just now
        except DiskFullError:
            return False  # there is no space just now
        finally:
            self._apply_lock.release()
        return True

    def apply(self, index: int, body: bytes) -> None:
        """Do what an entry says, which is the next one."""
        if index != self.applied + 1:
            raise CorruptionError(
                f"entry {index} of the group's log was to be applied after {self.applied}"
            )
        operations = decode_operations(body) if body else []
        if any(operation.kind is Kind.RENAME for operation in operations):
            if len(operations) > 1:
                raise CorruptionError(f"entry {index} renames, and does more than that")
            with self._note_lock:  # before `keep` or `snapshot` may note an earlier one
                self._apply(index, operations, self._rename)
        else:
            with self._apply_lock:
                self._apply(index, operations, self._do)

    def _apply(
        self,
        index: int,
        operations: list[Operation],
        do: Callable[[int, Operation], None],
    ) -> None:
        try:
            for operation in operations:
                do(index, operation)
        except (OSError, DiskFullError):  # it is tried again, and some of it is there
            self._half = index
            self._strict_after = max(self._strict_after, index)
            raise
        self.applied = index

    def _do(self, index: int, operation: Operation) -> None:
        kind, path = operation.kind, f"{self.root}/{operation.path}"
        if kind is Kind.LEADS:
            self._lead(operation)
            return
        if kind is Kind.REFUSES:
            self.refusing = self.refusing | {operation.path} if operation.path else frozenset()
            return
        if kind is Kind.REMOVE:
            self._changes.forget(operation.path)
        elif kind is not Kind.REMOVE_TREE:
            self._changes.note(index, operation.path)
        if kind is Kind.WRITE:
            self._write(index, operation)
        elif kind is Kind.TRUNCATE:
            if self._is_there(index, operation.path):
                self._file(operation.path).truncate(operation.offset)
                self._touched.files[path] = None
        else:
            self._change_names(index, operation, path)

    def _lead(self, operation: Operation) -> None:
        name = operation.path
        # The token first: who reads both without a lock then has it with the address.
        self._tokens[name] = operation.other
        self._clients[name] = operation.data.decode()

    def _change_names(self, index: int, operation: Operation, path: str) -> None:
        kind = operation.kind
        if index <= self._strict_after and not self._disk.exists(os.path.dirname(path)):
            return  # a later entry has removed the directory
        if kind is Kind.CREATE:
            self._file(operation.path)
            self._touched.files[path] = None
        elif kind is Kind.MAKE_DIRECTORY:
            if not self._disk.exists(path):
                self._disk.mkdir(path)
        else:
            self._close_below(operation.path)
            if kind is Kind.REMOVE:
                self._disk.remove(path)
            elif kind is Kind.REMOVE_TREE:
                self._disk.remove_tree(path)
            else:
                raise CorruptionError(f"entry {index} of the group's log does not say {kind.name}")
        self._touched.directories[os.path.dirname(path)] = None

    def _write(self, index: int, operation: Operation) -> None:
        if not self._is_there(index, operation.path):
            return
        try:
            self._file(operation.path).pwrite(operation.offset, operation.data)
        except OSError as error:
            raise full_or(error, f"writing to {operation.path}") from error
        self._touched.files[f"{self.root}/{operation.path}"] = None

    def _is_there(self, index: int, path: str) -> bool:
        """Whether a file is there that an entry writes to. One that is applied once more may be
        about a file which a later one has removed."""
        if path in self._files or self._disk.exists(f"{self.root}/{path}"):
            return True
        if index > self._strict_after:
            raise CorruptionError(f"entry {index} of the group's log writes to {path}, not there")
        return False

    def _rename(self, index: int, operation: Operation) -> None:
        old, new = operation.path, operation.other
        source, target = f"{self.root}/{old}", f"{self.root}/{new}"
        self._changes.forget(old)
        self._changes.note(index, new)
        self._keep(index - 1)
        if self._disk.exists(source):
            self._close_below(old)
            self._close_below(new)
            self._disk.rename(source, target)
        elif index > self._strict_after:
            raise CorruptionError(f"entry {index} of the group's log renames {old}, not there")
        for above in {os.path.dirname(source), os.path.dirname(target)}:
            self._disk.sync_dir(above)
        self._note(index)

    # -- files -----------------------------------------------------------------------------------

    def _file(self, path: str) -> File:
        file = self._files.pop(path, None)
        if file is None:
            if len(self._files) >= OPEN_MAX:
                self._files.pop(next(iter(self._files))).close()
            file = self._disk.open(f"{self.root}/{path}")
        self._files[path] = file
        return file

    def _close_below(self, path: str) -> None:
        below = f"{path}/" if path else ""
        for name in [one for one in self._files if one == path or one.startswith(below)]:
            self._files.pop(name).close()

    # -- for another server ----------------------------------------------------------------------

    @property
    def may_be_ahead(self) -> bool:
        """Whether the files may have some of what entries say that are not applied yet: a process
        before this one may have applied them, and not noted it."""
        return self.applied < self._strict_after

    def snapshot(self, held: Held | None = None) -> Snapshot:
        """The files as they are now, to be copied while entries go on, for a server that has what
        is `held`. Their names are of this moment, also where these may be ahead, which the copy
        says; what they hold may have more, which the entries from here on write once more. Raises
        `StorageError` where an entry was applied in part."""
        with self._note_lock, self._apply_lock:
            if self._half > self.applied:
                raise StorageError(f"entry {self._half} of the group's log is applied in part")
            self._snapshot_number += 1
            path = f"{self._snapshots}/{self._snapshot_number}"
            try:
                link_tree(self._disk, self.root, path)
            except BaseException:
                self._disk.remove_tree(path)
                raise
            leads = [
                Operation(Kind.LEADS, name, url.encode(), other=self._tokens.get(name, ""))
                for name, url in self._clients.items()
            ]
            changes = self._changes.copy()
            ahead = self._strict_after if self.may_be_ahead else 0
            return Snapshot(self._disk, path, self.applied, leads, changes, held or Held(), ahead)

    def held(self) -> Held:
        """What another server need not send, which is to be asked for a copy."""
        is_whole = not self.is_unknown and not self.is_doubtful
        broken = [one for one in (self._broken, self._arriving) if one is not None]
        exact = [one for one in broken if one.ahead <= one.index]
        usable = [one for one in exact if is_whole or not one.has_held]
        best = self._resumed = max(usable, key=lambda one: one.end, default=None)
        # Only what is durable: a sync that has failed may have lost what came behind it.
        index = self.durable if is_whole else 0
        self._held = Held(index, best.index, best.end) if best is not None else Held(index)
        return self._held

    def begin_install(self, index: int) -> None:
        """Files are to come from another server, as they were at an entry. What `held` has said
        last need not."""
        if self._resumed is None:
            self.give_up_install()
        elif self._resumed is self._arriving:
            self._broken = None
            self._disk.remove_tree(self._earlier)
            self._disk.rename(self._incoming, self._earlier)
            self._broken = self._resumed
        else:
            self._disk.remove_tree(self._incoming)
        self._arriving = None  # also if the next one cannot be made
        self._arriving = Arriving(
            self._disk, self._incoming, index, self._held, self.root, self._earlier
        )

    def take(self, piece: bytes) -> None:
        """A piece of a `Snapshot` has come. Raises `NotHeldError`: all has to be asked for."""
        assert self._arriving is not None
        try:
            self._arriving.take(piece)
        except NotHeldError:
            self.give_up_install()
            self.is_doubtful = True
            raise

    def give_up_install(self) -> None:
        """What has come goes: where there is no space for all of it, nothing else had any
        either."""
        self._arriving = self._broken = self._resumed = None
        self._disk.remove_tree(self._incoming)
        self._disk.remove_tree(self._earlier)

    def install(self) -> None:
        """All that has come takes the place of the files here. Raises OSError, `DiskFullError` and
        `NotHeldError`: a copy is to be asked for anew."""
        arriving = self._arriving
        assert arriving is not None
        with self._note_lock, self._apply_lock:
            try:
                if self.is_doubtful and arriving.has_held:  # since it was asked for
                    raise NotHeldError("files that were taken to be whole are damaged")
                arriving.sync()
            except BaseException as error:  # a sync that has failed is not asked again
                self.give_up_install()
                if isinstance(error, OSError):
                    raise full_or(error, "installing the files of another server") from error
                raise
            self._arriving = None  # its directory is another one from here on
            self._replace_files()
            for operation in arriving.leads:
                self._lead(operation)
            self.refusing = frozenset()
            self._touched, self._changes = Touched(), Changes(arriving.index)
            self.applied = self._half = arriving.index
            self._strict_after = max(arriving.index, arriving.ahead)
            self._note(arriving.index, is_doubtful=False)
            self.is_unknown = self.is_doubtful = False
        self._disk.remove_tree(self._replaced)
        self.give_up_install()

    def _replace_files(self) -> None:
        """Until the next note the one that there is says nothing about the files."""
        self.is_doubtful = True
        self._note(self.durable)
        self._close_below("")
        if self._disk.exists(self.root):  # else an attempt before has failed in between
            self._disk.remove_tree(self._replaced)
            self._disk.rename(self.root, self._replaced)
            self._disk.sync_dir(self.path)
        self._disk.rename(self._incoming, self.root)
        self._disk.sync_dir(self.path)

    def distrust(self) -> None:
        """The files here are damaged: another server sends all of them. Blocks; raises OSError,
        `DiskFullError` where that cannot be noted."""
        with self._note_lock:
            self.is_doubtful = True
            self._note(self.durable)

    # -- space -----------------------------------------------------------------------------------

    def has_space(self) -> bool:
        """Whether the disk has space for more than a little. Raises OSError."""
        path = f"{self.path}/space"
        try:
            file = self._disk.open(path)
            try:
                file.reserve(SPACE_BYTES)
            finally:
                file.close()
        except DiskFullError:
            return False
        finally:
            self._disk.remove(path)
        return True

    # -- what is durable -------------------------------------------------------------------------

    def keep(self) -> int:
        """Make durable what was applied; the index up to which it is. Entries go on meanwhile,
        but for renames."""
        with self._note_lock:
            self._keep(self.applied)
            return self.durable

    def _keep(self, index: int) -> None:
        """Make all up to `index` durable, which was applied, and note it."""
        if self._is_broken:
            raise StorageError(f"an earlier sync of {self.root} has failed")
        with self._apply_lock:
            touched, self._touched = self._touched, Touched()
        self._is_broken = True  # unless all of it goes well: a sync that failed is not asked again
        try:
            touched.sync(self._disk)
            self._is_broken = False  # a note that has no space takes nothing away
            self._note(index)
        except OSError as error:
            self._is_broken = True
            if not is_final(error):  # for want of descriptors, which connections have: once more
                with self._apply_lock:
                    self._touched.files.update(touched.files)
                    self._touched.directories.update(touched.directories)
                self._is_broken = False
            raise

    def _note(self, index: int, is_doubtful: bool | None = None) -> None:
        if is_doubtful is None:
            is_doubtful = self.is_doubtful
        number = self._noted.number + 1
        ahead = self._strict_after if self._strict_after > index else 0
        refusing = sorted(self.refusing)
        noted = Applied(number, index, self.clients, self.tokens, is_doubtful, ahead, refusing)
        content = msgspec.json.encode(noted)
        name = f"{self.path}/{_COPIES[noted.number % 2]}"
        is_new = not self._disk.exists(name)
        write_file(self._disk, name, crc32(content).to_bytes(4, "little") + content)
        if is_new:
            self._disk.sync_dir(self.path)
        self._noted = noted

    def _read(self) -> Applied:
        """The newest copy that is whole; where both are damaged, nothing is known."""
        found: list[Applied] = []
        names = [f"{self.path}/{name}" for name in _COPIES]
        there = [name for name in names if self._disk.exists(name)]
        for name in there:
            data = self._disk.read(name)
            if data[4:] and crc32(data[4:]) == int.from_bytes(data[:4], "little"):
                found.append(msgspec.json.decode(data[4:], type=Applied))
        self.is_unknown = not found and len(there) == len(names)
        return max(found, key=lambda one: one.number, default=Applied())
