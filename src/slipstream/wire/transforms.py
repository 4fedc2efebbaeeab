"""Subject transforms and weighted mappings (docs/protocol/streams.md#subject-transforms).

A transform takes the tokens that the wildcards of its source matched and puts them, or what a
function makes of them, into its destination.
"""

import re
from collections.abc import Callable
from random import Random

from slipstream.errors import ConfigError
from slipstream.wire.subjects import is_pattern, matches

_FUNCTION = re.compile(r"^\{\{\s*(\w+)\s*\((.*)\)\s*\}\}$")
_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_NUMBER_MAX = 2**31 - 1


class TransformError(ConfigError):
    """A source or destination that cannot be."""


Part = Callable[[str, list[str]], str]  # (whole subject, matched tokens) -> text of the token


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value


class Transform:
    """Maps subjects that match `source` to `destination`; the others it leaves alone."""

    def __init__(self, source: str, destination: str, random: Random | None = None) -> None:
        self.source = source or ">"
        self.destination = destination
        self._random = random or Random(0)
        self._pattern = self.source.encode()
        if not is_pattern(self._pattern):
            raise TransformError("invalid subject")
        tokens = self.source.split(".")
        self._tail = tokens[-1] == ">"
        self._stars = [i for i, token in enumerate(tokens) if token == "*"]
        self._fixed = len(tokens) - self._tail
        if self._tail != destination.endswith(">") or "*" in destination.split("."):
            raise TransformError("invalid subject")
        own = destination.split(".")
        self._parts = [self._part(token) for token in (own[:-1] if self._tail else own)]

    def map(self, subject: bytes) -> bytes:
        """The subject that `subject` becomes."""
        if not matches(self._pattern, subject):
            return subject
        text = subject.decode("utf-8", "surrogateescape")
        tokens = text.split(".")
        found = [tokens[i] for i in self._stars]
        made = [part(text, found) for part in self._parts]
        if self._tail:
            made.extend(tokens[self._fixed :])
        return ".".join(made).encode("utf-8", "surrogateescape")

    def _part(self, token: str) -> Part:
        if token.startswith("$") and token[1:].isdigit():
            return self._wildcard([token[1:]], token)
        match = _FUNCTION.match(token)
        if match is None:
            if token.startswith("{{") and token.endswith("}}"):
                raise TransformError(f"invalid mapping destination: unknown function in {token}")
            if not is_pattern(token.encode()):
                raise TransformError("invalid mapping destination: invalid transform")
            return lambda _subject, _found: token
        try:
            return self._function(match[1], match[2], token)
        except _WrongArgumentsError as error:
            raise TransformError(f"invalid mapping destination: {error} in {token}") from error

    def _function(self, name: str, arguments: str, token: str) -> Part:
        """What a function in double braces makes of a subject."""
        args = [arg.strip() for arg in arguments.split(",")] if arguments.strip() else []
        makers: dict[str, Callable[[list[str]], Part]] = {
            "wildcard": lambda a: self._wildcard(a, token),
            "partition": lambda a: self._partition(a, token),
            "random": self._random_number,
            "split": lambda a: self._split(a, token),
            "splitFromLeft": lambda a: self._cut(a, token, _split_left),
            "splitFromRight": lambda a: self._cut(a, token, _split_right),
            "sliceFromLeft": lambda a: self._cut(a, token, _slice_left),
            "sliceFromRight": lambda a: self._cut(a, token, _slice_right),
            "left": lambda a: self._cut(a, token, lambda text, n: text[:n]),
            "right": lambda a: self._cut(a, token, lambda text, n: text[-n:] if n else ""),
        }
        maker = makers.get(_canonical(name))
        if maker is None:
            raise TransformError(f"invalid mapping destination: unknown function in {token}")
        return maker(args)

    def _index(self, args: list[str], at: int, token: str) -> int:
        """The wildcard that argument `at` names, from 0 on."""
        number = self._number(args, at)
        if not 1 <= number <= len(self._stars):
            which = f": [{number}]" if self._stars else ""
            raise TransformError(
                f"invalid mapping destination: wildcard index out of range in {token}{which}"
            )
        return number - 1

    def _wildcard(self, args: list[str], token: str) -> Part:
        _expect(args, 1)
        at = self._index(args, 0, token)
        return lambda _subject, found: found[at]

    def _number(self, args: list[str], at: int) -> int:
        if at >= len(args) or not args[at].isdigit() or int(args[at]) > _NUMBER_MAX:
            raise _WrongArgumentsError("function argument is invalid or in the wrong format")
        return int(args[at])

    def _partition(self, args: list[str], token: str) -> Part:
        buckets = max(self._number(args, 0), 1)
        # The one subject that a source without wildcards has can only be hashed as a whole.
        chosen = range(1, len(args)) if self._stars else ()
        places = [self._index(args, at, token) for at in chosen]

        def part(subject: str, found: list[str]) -> str:
            text = "".join(found[at] for at in places) if places else subject
            return str(fnv1a(text.encode("utf-8", "surrogateescape")) % buckets)

        return part

    def _random_number(self, args: list[str]) -> Part:
        bound = max(self._number(args, 0), 1)
        return lambda _subject, _found: str(self._random.randrange(bound))

    def _split(self, args: list[str], token: str) -> Part:
        _expect(args, 2)
        at = self._index(args, 0, token)
        if not args[1]:
            return lambda _subject, found: found[at]
        return lambda _subject, found: ".".join(p for p in found[at].split(args[1]) if p)

    def _cut(self, args: list[str], token: str, cut: Callable[[str, int], str]) -> Part:
        _expect(args, 2)
        at = self._index(args, 0, token)
        size = self._number(args, 1)
        return lambda _subject, found: cut(found[at], size)


class _WrongArgumentsError(Exception):
    """A function's arguments are too few, too many or not what it takes."""


def _expect(args: list[str], count: int) -> None:
    if len(args) != count:
        few = "not enough" if len(args) < count else "too many"
        raise _WrongArgumentsError(f"{few} arguments passed to the function")


def _canonical(name: str) -> str:
    """The function's name with its usual capitals, whichever were written."""
    known = ("splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight")
    return next((k for k in known if k.lower() == name.lower()), name.lower())


def _split_left(text: str, at: int) -> str:
    return f"{text[:at]}.{text[at:]}" if 0 < at < len(text) else text


def _split_right(text: str, at: int) -> str:
    return f"{text[:-at]}.{text[-at:]}" if 0 < at < len(text) else text


def _slice_left(text: str, size: int) -> str:
    if not 0 < size < len(text):
        return text
    return ".".join(text[i : i + size] for i in range(0, len(text), size))


def _slice_right(text: str, size: int) -> str:
    if not 0 < size < len(text):
        return text
    head = len(text) % size
    pieces = [text[:head]] if head else []
    return ".".join(pieces + [text[i : i + size] for i in range(head, len(text), size)])


class Mappings:
    """Weighted subject mappings of an account; the most specific source that matches counts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._entries: list[tuple[bytes, list[tuple[Transform, int]], bool]] = []

    def add(self, source: str, destinations: list[tuple[str, int]]) -> None:
        """Map `source` to each destination for so many percent; the rest stays as it is, unless
        the source itself is among the destinations, then the rest is lost."""
        weighted = [
            (Transform(source, dest, self._random), weight) for dest, weight in destinations
        ]
        lossy = any(dest == source for dest, _ in destinations)
        self._entries.append((source.encode(), weighted, lossy))
        self._entries.sort(key=lambda entry: _wildness(entry[0]))

    def sources(self) -> list[bytes]:
        """The patterns that are mapped."""
        return [source for source, _, _ in self._entries]

    def map(self, subject: bytes) -> bytes:
        """The subject that a message published under `subject` gets; b"" if it is lost."""
        for source, destinations, lossy in self._entries:
            if not matches(source, subject):
                continue
            chance = self._random.random() * 100
            for transform, weight in destinations:
                if chance < weight:
                    return transform.map(subject)
                chance -= weight
            return b"" if lossy else subject
        return subject


def _wildness(pattern: bytes) -> tuple[int, int]:
    tokens = pattern.split(b".")
    return (sum(t == b">" for t in tokens), sum(t == b"*" for t in tokens))
