"""Options that set fields of a configuration, from a table instead of a long signature."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from slipstream.errors import ConfigError
from slipstream.model.documents import Document

Read = Callable[[str], Any]
D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """One option of the line and the field of the configuration that it sets.

    `kind` is what Typer makes of it; `read` turns a text into the field's value.
    """

    names: str
    field: str
    kind: type
    summary: str
    read: Read | None = None

    def parameter(self) -> inspect.Parameter:
        """As a parameter of a Typer command; None when not given."""
        more: dict[str, Any] = {"parser": self.read} if self.read and self.kind is str else {}
        if self.kind is not bool:
            more["metavar"] = "TEXT" if self.kind is str else None
        option = typer.Option(*self.names.split(" "), help=self.summary, **more)
        kind: Any = Any if "parser" in more else self.kind
        return inspect.Parameter(
            self.field,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None if kind is not Any else Any, option],
        )


def with_config_options(
    table: Sequence[ConfigOption],
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., Any]]:
    """Give a command the options of `table`; it gets those that were given as `given`."""

    def wrap(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
        own = [p for p in inspect.signature(function).parameters.values() if p.name != "given"]

        @functools.wraps(function)
        async def call(**words: Any) -> None:
            given = {option.field: words.pop(option.field) for option in table}
            given = {field: value for field, value in given.items() if value not in (None, [], ())}
            await function(**words, given=given)

        parameters = [
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
            *(option.parameter() for option in table),
        ]
        del call.__wrapped__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return wrap


def words_of(values: Sequence[str]) -> list[str]:
    """Values given with commas, or repeated, or both."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def pairs_of(values: Sequence[str]) -> dict[str, str]:
    """Of "key=value" or "key:value"."""
    found = {}
    for value in values:
        key, mark, text = value.partition("=") if "=" in value else value.partition(":")
        if not mark:
            raise typer.BadParameter(f'"{value}" must be written key=value')
        found[key.strip()] = text.strip()
    return found


def header_of(text: str) -> tuple[str, str]:
    """Name and value of "Name: value"."""
    name, mark, value = text.partition(":")
    if not mark:
        raise typer.BadParameter(f'header "{text}" must be written Name: value')
    return name.strip(), value.strip()


def read_config(path: Path, kind: type[D]) -> D:
    """A configuration from a JSON file: the object itself, or an info that has it as `config`."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
    return kind.from_wire(found.get("config", found))


def level_of(metadata: Mapping[str, str]) -> int:
    """The level of the API that a configuration needs, which servers from 2.11 on say."""
    level = metadata.get("_nats.req.level", "")
    return int(level) if level.isdigit() else 0
