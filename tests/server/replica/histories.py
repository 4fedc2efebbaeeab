"""What entries do to the files of a store, at random."""

from random import Random

from slipstream.server.replica.operations import Kind, Operation, encode_operations


class History:
    """Random operations, as entries, and what the files hold after each of them."""

    def __init__(self, random: Random, count: int) -> None:
        self._random = random
        self._files: dict[str, bytes] = {}
        self._directories = {""}
        self.entries: list[bytes] = []
        self.states: list[dict[str, bytes]] = [{}]
        while len(self.entries) < count:
            operations = self._some()
            if operations:
                self.entries.append(encode_operations(operations))
                self.states.append(dict(self._files))

    def _some(self) -> list[Operation]:
        if self._files and self._random.random() < 0.25:
            return self._rename()
        return [one for _ in range(self._random.randint(1, 3)) for one in self._one()]

    def _one(self) -> list[Operation]:
        random, files = self._random, self._files
        above = random.choice(sorted(self._directories))
        path = f"{above}/{random.choice('abcd')}".lstrip("/")
        below = f"{above}/{random.choice('XYZ')}".lstrip("/")  # names of directories
        kind = random.choice((Kind.WRITE, Kind.WRITE, Kind.WRITE, *Kind))
        if kind is Kind.CREATE:
            files.setdefault(path, b"")
            return [Operation(kind, path)]
        if kind is Kind.MAKE_DIRECTORY and below.count("/") < 2:
            self._directories.add(below)
            return [Operation(kind, below)]
        if kind is Kind.REMOVE and path in files:
            del files[path]
            return [Operation(kind, path)]
        if kind is Kind.REMOVE_TREE and below in self._directories:
            self._forget(below)
            return [Operation(kind, below)]
        if path in files and kind is Kind.TRUNCATE:
            size = random.randint(0, 30)
            files[path] = files[path][:size].ljust(size, b"\0")
            return [Operation(kind, path, offset=size)]
        if path in files and kind is Kind.WRITE:
            offset, data = random.randint(0, 1000), random.randbytes(random.randint(1, 1500))
            before = files[path].ljust(offset, b"\0")
            files[path] = before[:offset] + data + before[offset + len(data) :]
            return [Operation(kind, path, data, offset)]
        return []

    def _rename(self) -> list[Operation]:
        names = sorted({*self._files, *self._directories} - {""})
        old = self._random.choice(names)
        above = old.rpartition("/")[0]
        names = "abcd" if old in self._files else "XYZ"
        new = f"{above}/{self._random.choice(names)}".lstrip("/")
        if new == old or new in self._directories:
            return []
        if old in self._files:
            self._files[new] = self._files.pop(old)
        else:
            self._move(old, new)
        return [Operation(Kind.RENAME, old, other=new)]

    def _move(self, old: str, new: str) -> None:
        for names in (set(self._files), set(self._directories)):
            for path in names:
                if path == old or path.startswith(f"{old}/"):
                    there = new + path[len(old) :]
                    if path in self._files:
                        self._files[there] = self._files.pop(path)
                    else:
                        self._directories.discard(path)
                        self._directories.add(there)

    def _forget(self, above: str) -> None:
        below = f"{above}/"
        self._directories = {
            one for one in self._directories if one != above and not one.startswith(below)
        }
        for path in [one for one in self._files if one.startswith(below)]:
            del self._files[path]
