"""Questions, asked on a terminal only; without one the answers that are ready count."""

import sys
from collections.abc import Sequence

import typer


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
        raise typer.BadParameter(f"{label} is missing: give {option}")
    answer: str = typer.prompt(label)
    return answer


def confirm(question: str, force: bool) -> None:
    """Go on only if somebody says yes, or `--force` did."""
    if force:
        return
    if not may_ask():
        raise typer.BadParameter(f"{question} Nobody can be asked here: give --force to go on")
    typer.confirm(question, abort=True)
