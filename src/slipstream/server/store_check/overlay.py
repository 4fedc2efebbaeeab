"""A disk that reads the real one and keeps every change in memory."""

import os
from collections.abc import Sequence

from slipstream.log.disk import File


class _Content:
    """A file's bytes: the first `kept` are those of the real file but for `patches`, in their
    order; `tail` follows."""

    def __init__(self, path: str = "", kept: int = 0) -> None:
        self._path = path
        self._kept = kept
        self._patches: list[tuple[int, bytes]] = []
        self._tail = bytearray()

    @property
    def size(self) -> int:
        return self._kept + len(self._tail)

    def read(self, offset: int, size: int) -> bytes:
        """Raises OSError, as the real file does."""
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        found = bytearray(self._read_real(offset, min(end, self._kept)))
        for at, data in self._patches:
            first, last = max(at, offset), min(at + len(data), end)
            if first < last:
                found[first - offset : last - offset] = data[first - at : last - at]
        if end > self._kept:
            found += self._tail[max(offset - self._kept, 0) : end - self._kept]
        return bytes(found)

    def _read_real(self, offset: int, end: int) -> bytes:
        if offset >= end:
            return b""
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while offset < end:
                part = os.pread(fd, end - offset, offset)
                if not part:  # it was cut meanwhile
                    parts.append(bytes(end - offset))
                    break
                parts.append(part)
                offset += len(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def write(self, offset: int, data: bytes) -> None:
        before = min(max(self._kept - offset, 0), len(data))
        if before:
            self._patches.append((offset, bytes(data[:before])))
        if before < len(data):
            at = max(offset - self._kept, 0)
            if len(self._tail) < at:
                self._tail += bytes(at - len(self._tail))
            self._tail[at : at + len(data) - before] = data[before:]

    def cut(self, size: int) -> None:
        if size < self._kept:
            self._kept = size
            self._patches = [(at, data[: size - at]) for at, data in self._patches if at < size]
        del self._tail[max(size - self._kept, 0) :]
        if size > self.size:
            self._tail += bytes(size - self.size)


class _Directory:
    """A directory: what the real one had when it was looked at first, and changes since."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: dict[str, _Node] | None = None

    @property
    def entries(self) -> dict[str, "_Node"]:
        if self._found is None:
            self._found = {}
            if self._path:
                with os.scandir(self._path) as listed:
                    self._found = {entry.name: _node(entry) for entry in listed}
        return self._found


_Node = _Content | _Directory


def _node(entry: "os.DirEntry[str]") -> _Node:
    return _Directory(entry.path) if entry.is_dir() else _Content(entry.path, entry.stat().st_size)


class OverlayFile:
    """An open file of an `OverlayDisk`; see `slipstream.log.disk.File`."""

    def __init__(self, disk: "OverlayDisk", path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._at = content.size

    def append(self, data: bytes) -> None:
        self._content.write(self._at, data)
        self._at += len(data)

    def pread(self, offset: int, size: int) -> bytes:
        return self._content.read(offset, size)

    def pread_near(self, offset: int, size: int) -> bytes:
        return self._content.read(offset, size)

    def pread_stored(self, offset: int, size: int) -> bytes:
        return self._content.read(offset, size)

    def pwrite(self, offset: int, data: bytes) -> None:
        self._content.write(offset, data)

    def reserve(self, size: int) -> int:
        return size

    def reserve_ahead(self, size: int) -> int:
        return size

    def truncate(self, size: int) -> None:
        self._content.cut(size)
        self._at = size

    def go_on_at(self, size: int) -> None:
        self._at = size

    def rewind(self) -> None:
        self._at = 0

    def flush(self) -> None:
        """Everything is in memory."""

    def sync(self) -> None:
        """Nothing survives the process."""

    def rename(self, path: str) -> None:
        if path != self._path:
            self._disk.rename(self._path, path)
            self._path = path

    def size(self) -> int:
        return self._at

    def data_end(self) -> int:
        return self._at

    def hold(self) -> None:
        """Nothing is held open."""

    def close(self) -> None:
        """Release the files."""

    def drop(self) -> None:
        self.close()


class OverlayDisk:
    """The directory `root` and what lies in it, as a disk whose changes leave no trace; see
    `slipstream.log.disk.Disk`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._top = _Directory(root)

    def put_before(self, name: str, directory: str) -> None:
        """Have `directory`, which lies elsewhere, stand as `name` in the root."""
        self._top.entries[name] = _Directory(directory)

    def _names(self, path: str) -> list[str]:
        assert path == self._root or path.startswith(self._root + "/"), path
        return [name for name in path[len(self._root) :].split("/") if name]

    def _find(self, path: str) -> "_Node | None":
        node: _Node | None = self._top
        for name in self._names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _above(self, path: str) -> tuple[dict[str, "_Node"], str]:
        """The entries of the directory that `path` lies in, and its name there."""
        above = self._find(os.path.dirname(path))
        if not isinstance(above, _Directory):
            raise FileNotFoundError(2, "No such directory", os.path.dirname(path))
        return above.entries, os.path.basename(path)

    def open(self, path: str) -> OverlayFile:
        entries, name = self._above(path)
        content = entries.setdefault(name, _Content())
        if not isinstance(content, _Content):
            raise IsADirectoryError(21, "Is a directory", path)
        return OverlayFile(self, path, content)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, path: str) -> "list[str]":
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, _Directory) else []

    def read(self, path: str) -> bytes:
        content = self._find(path)
        if not isinstance(content, _Content):
            raise FileNotFoundError(2, "No such file", path)
        return content.read(0, content.size)

    def read_stored(self, path: str) -> bytes:
        return self.read(path)

    def read_ahead(self, paths: Sequence[str]) -> None:
        """What is read is in memory."""

    def mkdir(self, path: str) -> None:
        entries, name = self._above(path)
        if name in entries:
            raise FileExistsError(17, "File exists", path)
        entries[name] = _Directory()

    def makedirs(self, path: str) -> None:
        node = self._top
        for name in self._names(path):
            found = node.entries.setdefault(name, _Directory())
            if not isinstance(found, _Directory):
                raise NotADirectoryError(20, "Not a directory", path)
            node = found

    def remove(self, path: str) -> None:
        if self.exists(path):
            entries, name = self._above(path)
            del entries[name]

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def rename(self, old: str, new: str) -> None:
        entries, name = self._above(old)
        target, new_name = self._above(new)
        target[new_name] = entries.pop(name)

    def sync_dir(self, path: str) -> None:
        """Nothing survives the process."""

    def sync_all(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """Nothing survives the process."""

    def flush_all(self, files: Sequence[File]) -> Sequence[OSError | None]:
        return [None] * len(files)

    def settle(self) -> None:
        """So it is."""

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)
