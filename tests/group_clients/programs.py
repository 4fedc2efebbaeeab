"""The programs of the clients: how each is built, and why it cannot be had where it cannot."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "clients"
BUILD = Path(__file__).parents[2] / "build" / "group_clients"
FETCH_SECONDS_MAX = 300.0


class MissingError(Exception):
    """The tools of the language, or the client's library, cannot be had here."""


@dataclass(frozen=True, slots=True)
class Program:
    """One client. `tool` has to be on PATH; `fetch` gets the library, `build` makes the program,
    `start` is its command; `{source}` and `{build}` are the folders of both."""

    name: str
    library: str
    tool: str = ""
    fetch: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()  # files that have to be where the library is

    def made(self) -> list[str]:
        """The command, once the program is there. Raises `MissingError`, and CalledProcessError for
        a program that cannot be built."""
        if self.tool and shutil.which(self.tool) is None:
            raise MissingError(f"{self.library} needs `{self.tool}`, which is not on PATH")
        build = BUILD / self.name
        with _alone(build):
            for name in self.copied:
                shutil.copy(SOURCE / self.name / name, build / name)
            if self.fetch:
                self._get_library(build)
            if self.build:
                subprocess.run(self._filled(self.build), cwd=self._folder(build), check=True)
        return self._filled(self.start)

    def _get_library(self, build: Path) -> None:
        try:
            subprocess.run(
                self._filled(self.fetch), cwd=self._folder(build), check=True, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise MissingError(
                f"{self.library} was not fetched within {error.timeout} s"
            ) from error
        except subprocess.CalledProcessError as error:
            last = error.stdout.strip().splitlines()[-1:] or [""]
            raise MissingError(f"{self.library} cannot be fetched: {last[0]}") from error

    def _folder(self, build: Path) -> Path:
        return build if self.copied else SOURCE / self.name

    def _filled(self, words: tuple[str, ...]) -> list[str]:
        folders = {"source": str(SOURCE), "build": str(BUILD / self.name)}
        return [word.format(**folders) for word in words]


@contextmanager
def _alone(build: Path) -> Iterator[None]:
    """Nobody else builds the same meanwhile, such as another process of the tests."""
    build.mkdir(parents=True, exist_ok=True)
    lock = os.open(build / ".lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


PROGRAMS = {
    one.name: one
    for one in (
        Program("python", "nats-py", start=(sys.executable, "{source}/nats_py.py")),
        Program(
            "go", "nats.go", "go",
            fetch=("go", "mod", "download"),
            build=("go", "build", "-o", "{build}/client", "."),
            start=("{build}/client",),
        ),
        Program(
            "rust", "async-nats", "cargo",
            fetch=("cargo", "fetch", "--locked", "--quiet"),
            build=("cargo", "build", "--release", "--locked", "--offline", "--quiet",
                   "--target-dir", "{build}"),
            start=("{build}/release/client",),
        ),
        Program(
            "node", "nats.js", "npm",
            fetch=("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),
            start=("node", "{build}/main.mjs"),
            copied=("main.mjs", "package.json", "package-lock.json"),
        ),
    )
}  # fmt: skip
