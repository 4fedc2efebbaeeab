"""Questions, asked on a terminal only; without one the answers that are ready count."""

import sys
from collections.abc import Sequence

import typer

from slipstream.cli.global_options import UsageError


def may_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(label: str, default: str, choices: Sequence[str] = ()) -> str:
    """An answer; `default` when nobody can be asked."""
    if not may_ask():
        return default
    hint = f" ({', '.join(choices)})" if choices else ""
    while True:
        answer: str = typer.prompt(label + hint, default=default, show_default=default != "")
        if not choices or answer in choices:
            return answer


def require(label: str, value: str, option: str) -> str:
    """A value that has no default: asked for, or an error that names the option."""
    if value:
        return value
    if not may_ask():
        raise UsageError(f"{label} is missing: give {option}")
    answer: str = typer.prompt(label)
    return answer


def confirm(question: str, force: bool) -> None:
    """Go on only if somebody says yes, or `--force` did."""
    if force:
        return
    if not may_ask():
        raise UsageError(f"{question} Nobody can be asked without a terminal: give --force")
    typer.confirm(question, abort=True)


def pick(label: str, choices: Sequence[str]) -> str:
    """One of `choices`, by its number or its name."""
    for number, choice in enumerate(choices, 1):
        typer.echo(f"  {number:>3}  {choice}", err=True)
    while True:
        answer: str = typer.prompt(label, default="1" if len(choices) == 1 else None)
        if answer in choices:
            return answer
        if answer.isdigit() and 0 < int(answer) <= len(choices):
            return choices[int(answer) - 1]


class Pager:
    """Stops after each page on a terminal, until somebody wants the next. Without one: never."""

    def __init__(self, size: int) -> None:
        self._size = size if may_ask() else 0
        self._shown = 0

    def wants_more(self) -> bool:
        """After each thing shown: whether to go on."""
        self._shown += 1
        if not self._size or self._shown % self._size:
            return True
        return typer.confirm("Next Page?", default=True)
