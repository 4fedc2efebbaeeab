"""What every target is made of: decisions read from an input, and outcomes compared."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from fuzz.builds import Build

T = TypeVar("T")
OneInput = Callable[[bytes], None]


class Target(Protocol):
    """A module in `fuzz/targets`."""

    DICTIONARY: Sequence[bytes]  # words that inputs are made of

    @staticmethod
    def seeds() -> list[bytes]:
        """Inputs to begin with: one of each kind that is worth changing."""

    @staticmethod
    def make(plain: Build, compiled: Build) -> OneInput:
        """What is done with an input: it raises for a finding, and returns otherwise."""


class Finding(AssertionError):
    """The two builds differ, or something else that may never be."""


class Choices:
    """Decisions by the bytes of an input. After its end every decision is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        """Bytes not used yet."""
        return len(self._data) - self._at

    def byte(self) -> int:
        """A number from 0 to 255."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1, from as few bytes as it takes."""
        value = 0
        top = 1
        while top < limit:
            value = value << 8 | self.byte()
            top <<= 8
        return value % limit

    def signed(self) -> int:
        """A number of 64 bits: mostly small, sometimes at an edge."""
        kind = self.byte()
        if kind < 200:
            return kind - 20
        if kind < 240:
            return int.from_bytes(self.some(4), "little") - 2**31
        return (2**63 - 1, -(2**63), 2**32, 2**32 - 1, 2**31, -1, 2**62, 2**16)[kind % 8]

    def pick(self, among: Sequence[T]) -> T:
        """One of `among`."""
        return among[self.below(len(among))]

    def some(self, count: int) -> bytes:
        """`count` bytes, fewer at the end."""
        found = self._data[self._at : self._at + count]
        self._at += len(found)
        return found

    def text(self, longest: int = 255) -> bytes:
        """Bytes with their length before them."""
        return self.some(self.below(longest + 1))

    def rest(self) -> bytes:
        """All that is left."""
        return self.some(self.left())


def on_both(
    plain: Build, compiled: Build, module: str, what: str, act: Callable[[Any, bytes], object]
) -> OneInput:
    """Have `act` do the same with each build's `module` and the input, and compare outcomes."""
    modules = [(build, build(module)) for build in (plain, compiled)]

    def one_input(data: bytes) -> None:
        found = []
        for build, loaded in modules:
            with build.current():
                found.append(act(loaded, data))
        agree(what, found[0], found[1])

    return one_input


def pieces(data: bytes, choices: Choices) -> list[bytes]:
    """`data`, cut where `choices` says."""
    found = []
    for _ in range(choices.below(8)):
        size = choices.byte()
        found.append(data[:size])
        data = data[size:]
    return [*found, data]


def outcome(
    documented: type[Exception] | tuple[type[Exception], ...],
    call: Callable[..., object],
    *arguments: object,
) -> object:
    """What `call` returns, or that it raises an exception that its documentation names."""
    try:
        return call(*arguments)
    except documented as error:
        kinds = documented if isinstance(documented, tuple) else (documented,)
        return f"raises {next(kind.__name__ for kind in kinds if isinstance(error, kind))}"


def agree(what: str, plain: object, compiled: object) -> None:
    """Raise `Finding` unless both builds gave the same."""
    if plain != compiled:
        raise Finding(f"{what}\n  plain:    {plain!r}\n  compiled: {compiled!r}")
