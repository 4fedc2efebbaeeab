"""Reading a line that is right, without Typer's machinery.

A command is declared for Typer, once. Typer needs longer to get ready (it loads Pydantic and builds
a parser of every command of the group) than most commands need to run, so a line that is plain and
right is read here, straight from the declaration. Whatever is not, a request for help, a mistake
or a kind of parameter that is not known here, is left to Typer, which has the words for it.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

Command = Callable[..., Any]


class _LeftToTyper(Exception):
    """The line is not for us."""


@dataclass(slots=True)
class _Parameter:
    """A parameter of a command, as it was declared."""

    name: str
    kind: Any  # str, int, float, bool, Path
    info: OptionInfo | ArgumentInfo
    default: Any
    is_list: bool

    def value_of(self, text: str) -> Any:
        """What `text` means; raises `_LeftToTyper` if that is not certain."""
        try:
            value = (self.info.parser or self.kind)(text)
        except (ValueError, typer.BadParameter):
            raise _LeftToTyper from None
        if self.kind in (int, float) and not self.info.parser:
            low, high = self.info.min, self.info.max
            if (low is not None and value < low) or (high is not None and value > high):
                raise _LeftToTyper
        return value


def command_of(
    app: typer.Typer, words: Sequence[str], is_part: bool = False
) -> tuple[Command, dict[str, Any]] | None:
    """The command that `words` mean and its arguments; None where Typer must look at them.

    `words` begin with the name of a sub-command where `app` is a group, or a part of one.
    """
    found = app.registered_commands
    is_group = app.registered_callback is not None or len(found) > 1 or app.registered_groups
    if is_group or is_part:
        found = [one for one in found if words and one.name == words[0]]
        words = words[1:]
    if not found or found[0].callback is None:
        return None
    callback = found[0].callback
    try:
        return callback, _arguments(_parameters(callback), words)
    except _LeftToTyper:
        return None


def names_on_the_line(callback: Command, arguments: dict[str, Any]) -> dict[str, str]:
    """What the line calls things, by what the help calls them: STREAM, BUCKET, KEY."""
    return {
        one.info.metavar or one.name.upper(): arguments[one.name]
        for one in _parameters(callback)
        if isinstance(arguments[one.name], str)
    }


def _parameters(callback: Command) -> list[_Parameter]:
    found = []
    for name, parameter in inspect.signature(callback).parameters.items():
        if get_origin(parameter.annotation) is not Annotated:
            raise _LeftToTyper
        kind, info = get_args(parameter.annotation)[:2]
        plain = isinstance(info, OptionInfo | ArgumentInfo) and not (info.callback or info.envvar)
        if not plain or (isinstance(info, OptionInfo) and not _names(info)):
            raise _LeftToTyper
        if get_origin(kind) in (Union, UnionType):
            kinds = [one for one in get_args(kind) if one is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else None
        is_list = get_origin(kind) is list
        kind = get_args(kind)[0] if is_list else kind
        if kind not in (str, int, float, bool, Path) and not info.parser:
            raise _LeftToTyper
        found.append(_Parameter(name, kind, info, parameter.default, is_list))
    return found


def _names(option: OptionInfo) -> list[str]:
    """How an option is written; Typer takes the first name for a default until it looks again."""
    names = [option.default, *(option.param_decls or ())]
    return [name for name in names if isinstance(name, str) and name.startswith("-")]


def _arguments(parameters: list[_Parameter], words: Sequence[str]) -> dict[str, Any]:
    options = _options(parameters)
    found: dict[str, Any] = {}
    loose: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            loose += left
        elif not word.startswith("-") or word == "-":
            loose.append(word)
        else:
            name, has_value, text = word.partition("=")
            if name not in options:
                raise _LeftToTyper
            parameter, switch = options[name]
            if switch is not None:
                if has_value:
                    raise _LeftToTyper
                found[parameter.name] = switch
                continue
            value = text if has_value and name.startswith("--") else next(left, None)
            if value is None or (has_value and not name.startswith("--")):
                raise _LeftToTyper
            _take(found, parameter, value)
    _place(found, [one for one in parameters if isinstance(one.info, ArgumentInfo)], loose)
    for parameter in parameters:
        if parameter.name not in found:
            if parameter.default is inspect.Parameter.empty:
                raise _LeftToTyper
            empty = list(parameter.default or []) if parameter.is_list else parameter.default
            found[parameter.name] = empty
    return found


def _options(parameters: list[_Parameter]) -> dict[str, tuple[_Parameter, bool | None]]:
    """By name: the parameter, and for a switch what it is set to."""
    found: dict[str, tuple[_Parameter, bool | None]] = {}
    for parameter in parameters:
        if isinstance(parameter.info, OptionInfo):
            for declared in _names(parameter.info):
                on, _, off = declared.partition("/")
                found[on.strip()] = (parameter, True if parameter.kind is bool else None)
                if off:
                    found[off.strip()] = (parameter, False)
    for name, (parameter, switch) in list(found.items()):
        if switch and name.startswith("--"):  # a switch that is off unless it is given
            found.setdefault(f"--no-{name[2:]}", (parameter, False))
    return found


def _take(found: dict[str, Any], parameter: _Parameter, text: str) -> None:
    value = parameter.value_of(text)
    if parameter.is_list:
        found.setdefault(parameter.name, []).append(value)
    else:
        found[parameter.name] = value


def _place(found: dict[str, Any], parameters: list[_Parameter], words: list[str]) -> None:
    """Give the words without a dash to the arguments, in their order."""
    for at, parameter in enumerate(parameters):
        if parameter.is_list:
            if at != len(parameters) - 1:
                raise _LeftToTyper
            for word in words:
                _take(found, parameter, word)
            return
        if words:
            _take(found, parameter, words.pop(0))
    if words:
        raise _LeftToTyper
