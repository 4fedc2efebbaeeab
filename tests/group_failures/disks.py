"""The disks of servers: what a power cut leaves of them, and bits that turn over.

`RecordedDisk` is a directory of which a preloaded library records each change and sync (see
`tests.power_cuts`). A power cut leaves what was synced; the rest is lost, kept, torn, or in another
order. `ImageDisk` is a file system of its own in an image. It serves programs that nothing can be
preloaded into. Of it a power cut leaves what the system has written to the image by then, as of a
machine whose memory is lost: that is milder, because a system writes by itself after some seconds.
"""

import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Protocol

from tests.power_cuts.disk_model import DiskModel, Loss
from tests.power_cuts.trace import read_trace

IMAGE_BYTES = 192 * 1024 * 1024
TRIES = 20  # to copy an image while nothing is written to it


class ServerDisk(Protocol):
    """Where a server keeps its files."""

    path: Path

    def environment(self) -> dict[str, str]:
        """What a process that writes there has to be started with."""

    def settle(self) -> None:
        """Some time goes by: what a system writes by itself after a while is written."""

    def freeze(self) -> None:
        """The power goes now; the server's process is stopped, and about to be killed."""

    def cut(self, random: Random) -> str:
        """Have `path` hold what a power cut has left; the server has ended. Says in which way."""

    def changed(self) -> None:
        """Somebody else than the server has changed files; that is durable."""

    def close(self) -> None:
        """It is needed no more."""


class RecordedDisk:
    """See the module's text. `library` is the recorder."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self._library = library
        self._trace = path.with_name(f"{path.name}.trace")
        self._model = DiskModel(path)

    def environment(self) -> dict[str, str]:
        """The recorder."""
        return {
            "LD_PRELOAD": str(self._library),
            "CUTS_ROOT": str(self.path),
            "CUTS_TRACE": str(self._trace),
        }

    def settle(self) -> None:
        """Nothing: of such a disk only what was synced is sure to be left."""

    def freeze(self) -> None:
        """The trace ends with the process."""

    def cut(self, random: Random) -> str:
        """See `ServerDisk`."""
        for record in read_trace(self._trace):
            self._model.play(record)
        loss = random.choice(list(Loss))
        left = self.path.with_name(f"{self.path.name}.left")
        self._model.write_after_cut(left, random, loss)
        shutil.rmtree(self.path)
        left.rename(self.path)
        self.changed()
        return loss.value

    def changed(self) -> None:
        """All that is there counts as durable from here on."""
        self._trace.unlink(missing_ok=True)
        self._model = DiskModel(self.path)
        self._model.load(self.path)

    def close(self) -> None:
        """The trace goes."""
        self._trace.unlink(missing_ok=True)


class ImageDisk:
    """See the module's text. It is mounted for the thread that makes it, and its children."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self._image = path.with_name(f"{path.name}.image")
        self._left = path.with_name(f"{path.name}.left")
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self._image], check=True, capture_output=True)
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True)
        found = os.stat(self.path).st_dev
        self._written = Path(f"/sys/dev/block/{os.major(found)}:{os.minor(found)}/stat")

    def environment(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def settle(self) -> None:
        """See `ServerDisk`."""
        subprocess.run(["sync", "-f", self.path], check=True)

    def freeze(self) -> None:
        """Copy what is on the image, and no file system's memory."""
        for _ in range(TRIES):
            before = self._writes()
            subprocess.run(["cp", "--sparse=always", self._image, self._left], check=True)
            if self._writes() == before:
                return
        raise RuntimeError(f"{self._image} is written to all the time")

    def _writes(self) -> tuple[str, str]:
        fields = self._written.read_text().split()
        return fields[4], fields[8]  # writes that have ended, and requests on their way

    def cut(self, random: Random) -> str:
        """See `ServerDisk`."""
        self.close()
        self._left.rename(self._image)
        self._mount()
        return "what was not written is lost"

    def changed(self) -> None:
        """The change is as durable as what the system writes."""
        self.settle()

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", self.path], check=True)


def flip_bits(path: Path, random: Random, count: int, *, from_end: bool = False) -> int:
    """Turn over bits of a file's content, zeros at its end left out; how many were."""
    data = path.read_bytes()
    size = len(data.rstrip(b"\0"))
    with path.open("r+b") as file:
        for _ in range(count if size else 0):
            first = max(0, size - size // 4 - 1) if from_end else 0
            at = random.randrange(first, size)
            file.seek(at)
            file.write(bytes([data[at] ^ 1 << random.randrange(8)]))
    return count if size else 0
