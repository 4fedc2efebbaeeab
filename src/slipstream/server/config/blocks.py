"""How a map of the file fills an option struct: by a table of directives, each known in one place.

A `Block` is one `{ }` of the configuration: its directives say what they are called, which kind of
value they take, which option that sets, whether a reload can change it and what it means. The
documentation and the reload rules are made from the same tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Any

from slipstream.server.config.kinds import Address, Anything, Kind, Notes, Wrong
from slipstream.server.config.tree import Entry, Value


class Support(Enum):
    """What the server does with a directive."""

    FULL = "yes"
    NO_EFFECT = "accepted, no effect"
    REFUSED = "not supported yet"


Put = Callable[[Any, Any], None]


@dataclass(slots=True, frozen=True)
class Directive:
    """One directive. `option` is the path of the option it sets ("" where `put` sets several)."""

    name: str
    kind: Kind
    meaning: str
    aliases: tuple[str, ...] = ()
    option: str = ""
    reloadable: bool = False
    support: Support = Support.FULL
    put: Put | None = None
    inner: "Block | None" = None  # of a directive that is a map itself
    switches: tuple[str, ...] = ()  # what turns a block on that is refused; without it, it is off
    advice: str = "remove it"  # what to do about one that is refused

    def store(self, target: Any, value: Any) -> None:
        """Set the option in `target`."""
        if self.put is not None:
            self.put(target, value)
            return
        *parents, name = (self.option or self.name).split(".")
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)


@dataclass(slots=True, frozen=True)
class Block:
    """A map of the configuration; `variables` whether keys may serve as variables only."""

    name: str
    directives: tuple[Directive, ...]
    variables: bool = True
    by_name: dict[str, Directive] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directive in self.directives:
            for name in (directive.name, *directive.aliases):
                assert name not in self.by_name, f"{self.name}: {name} is in the table twice"
                self.by_name[name] = directive

    def fill(self, value: Value, target: Any, notes: Notes) -> None:
        """Set `target`'s options from the map `value`; what is wrong goes into `notes`."""
        for key, entry in entries_of(value, self.name).items():
            directive = self.by_name.get(key.lower())
            if directive is None:
                if not (entry.is_variable and self.variables):
                    notes.wrong(entry.place, self._unknown(key))
                continue
            self._apply(directive, entry, target, notes)

    def _apply(self, directive: Directive, entry: Entry, target: Any, notes: Notes) -> None:
        if directive.support is Support.REFUSED and not _is_off(entry.value, directive.switches):
            where = f" in {self.name}" if self.name else ""
            notes.wrong(
                entry.place, f'"{entry.key}"{where} is not supported yet: {directive.advice}'
            )
            return
        try:
            found = directive.kind.read(entry.value, notes)
            if directive.support is Support.FULL:
                directive.store(target, found)
        except Wrong as error:
            if error.place is not None:
                notes.wrong(error.place, str(error))
            else:
                notes.wrong(entry.place, f'invalid "{entry.key}": {error}')

    def _unknown(self, key: str) -> str:
        used = [name for name, each in self.by_name.items() if each.support is Support.FULL]
        near = get_close_matches(key.lower(), used, n=1)
        near = near or get_close_matches(key.lower(), self.by_name, n=1)
        hint = f', did you mean "{near[0]}"?' if near else ""
        return f'unknown field "{key}"{hint}'


def entries_of(value: Value, what: str) -> dict[str, Entry]:
    """The entries of a map; `Wrong` if it is none."""
    if not isinstance(value.data, dict):
        raise Wrong(f"{what or 'the configuration'} must be a map {{ }}, found {value.describe()}")
    return value.data


def items_of(value: Value, what: str) -> list[Value]:
    """The values of a list; `Wrong` if it is none."""
    if not isinstance(value.data, list):
        raise Wrong(f"{what} must be a list [ ], found {value.describe()}")
    return value.data


def refused(names: str, meaning: str, switches: str = "", advice: str = "remove it") -> Directive:
    """A directive for something that the server does not do yet; `names` begins with the name.

    A block is refused only if it holds one of its `switches`: the others only say how it would run.
    """
    name, *aliases = names.split()
    return Directive(
        name,
        Anything,
        meaning,
        aliases=tuple(aliases),
        support=Support.REFUSED,
        switches=tuple(switches.split()),
        advice=advice,
    )


def no_effect(names: str, kind: Kind, meaning: str) -> Directive:
    """A directive that is checked and then makes no difference here."""
    name, *aliases = names.split()
    return Directive(name, kind, meaning, aliases=tuple(aliases), support=Support.NO_EFFECT)


def optional(names: str, kind: Kind, meaning: str, option: str = "", **more: Any) -> Directive:
    """A directive that is supported; `names` begins with the name."""
    name, *aliases = names.split()
    return Directive(name, kind, meaning, aliases=tuple(aliases), option=option, **more)


def listen(usual: int, meaning: str) -> Directive:
    """The directive `listen`: host and port in one. Port 0 stands for the usual one."""

    def put(target: Any, found: tuple[str, int]) -> None:
        host, port = found
        target.host = host or target.host
        target.port = port or usual

    return optional("listen", Address, meaning, put=put)


def block_kind(block: Block, make: Callable[[], Any]) -> Kind:
    """The kind of a directive that is a map: `make` gives the struct that `block` fills."""

    def read(value: Value, notes: Notes) -> Any:
        target = make()
        block.fill(value, target, notes)
        return target

    return Kind("map", read)


def walk(block: Block, prefix: str = "") -> Iterable[tuple[str, Directive]]:
    """Every directive of a block and of the blocks in it, with its path."""
    for directive in block.directives:
        path = f"{prefix}{directive.name}"
        yield path, directive
        if directive.inner is not None:
            yield from walk(directive.inner, f"{path}.")


def _is_off(value: Value, switches: tuple[str, ...]) -> bool:
    """Whether a value asks for nothing: false, an empty text, list or map, or a block in which each
    switch is missing, 0 or asks for nothing itself."""
    data = value.data
    if switches and isinstance(data, dict):
        wanted = [entry.value for key, entry in data.items() if key.lower() in switches]
        return all(one.data == 0 or _is_off(one, ()) for one in wanted)
    return data is False or data in ("", [], {})
