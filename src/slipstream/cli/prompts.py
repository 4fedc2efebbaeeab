"""Questions, asked on a terminal only; without one the answers that are ready count.

Whatever waits for a person waits inside `interruptible`, so that Ctrl-C ends the command there.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from slipstream.cli.global_options import UsageError

CHUNK_BYTES = 128 * 1024
Force = Annotated[bool, typer.Option("--force", "-f", help="Do not ask")]


def may_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end what waits for a person; raises `typer.Abort` then.

    Under `asyncio.run` the first Ctrl-C only cancels the task, which takes effect at its next
    `await`: a question would stay, and its answer would still be acted on. In here Ctrl-C
    interrupts at once, and one that came before, or just after the answer, counts as well.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _heed_cancelling()
        yield
    except (KeyboardInterrupt, typer.Abort):
        typer.echo(err=True)  # the terminal has shown ^C: what follows begins a line of its own
        raise typer.Abort from None
    finally:
        signal.signal(signal.SIGINT, before)
    _heed_cancelling()


def _heed_cancelling() -> None:
    with suppress(RuntimeError):  # no loop is running
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise typer.Abort


def _prompt(label: str, **options: Any) -> str:
    with interruptible():
        answer: str = typer.prompt(label, **options)
    return answer


def ask(label: str, default: str, choices: Sequence[str] = ()) -> str:
    """An answer; `default` when nobody can be asked."""
    if not may_ask():
        return default
    hint = f" ({', '.join(choices)})" if choices else ""
    while True:
        answer = _prompt(label + hint, default=default, show_default=default != "")
        if not choices or answer in choices:
            return answer


def require(label: str, value: str, option: str, hidden: bool = False) -> str:
    """A value that has no default: asked for, or an error that names the option."""
    if value:
        return value
    if not may_ask():
        raise UsageError(f"{label} is missing: give {option}")
    return _prompt(label, hide_input=hidden)


def confirm(question: str, force: bool) -> None:
    """Go on only if somebody says yes, or `--force` did. Raises `typer.Abort` for a no."""
    if force:
        return
    if not may_ask():
        raise UsageError(f"{question} Nobody can be asked without a terminal: give --force")
    with interruptible():
        agreed = typer.confirm(question)
    if not agreed:
        raise typer.Abort


def pick(label: str, choices: Sequence[str]) -> str:
    """One of `choices`, by its number or its name."""
    for number, choice in enumerate(choices, 1):
        typer.echo(f"  {number:>3}  {choice}", err=True)
    while True:
        answer = _prompt(label, default="1" if len(choices) == 1 else None)
        if answer in choices:
            return answer
        if answer.isdigit() and 0 < int(answer) <= len(choices):
            return choices[int(answer) - 1]


def read_stdin() -> bytes:
    """All of standard input; a person at a terminal ends it with Ctrl-D, or stops with Ctrl-C."""
    found = bytearray()
    with interruptible():
        if sys.stdin.isatty():
            typer.echo("Reading from standard input; end with Ctrl-D", err=True)
        # `sys.stdin.read()` would take a line that came just after Ctrl-C, and go on reading.
        while chunk := os.read(sys.stdin.fileno(), CHUNK_BYTES):
            found += chunk
    return bytes(found)


def stdin_chunks() -> Iterator[bytes]:
    """Standard input as it comes; a person at a terminal may stop it with Ctrl-C."""
    while True:
        with interruptible():
            chunk = os.read(sys.stdin.fileno(), CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


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
        with interruptible():
            return typer.confirm("Next Page?", default=True)
