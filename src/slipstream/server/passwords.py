"""Passwords that are kept as bcrypt hashes: checked on threads, a bounded number at a time.

A check takes a tenth of a second by design, so strangers who try passwords must not keep others
from logging in, nor learn who exists. Checks have threads of their own, no more than leave the
server a processor. What waits for them stands in line by address, and addresses take turns: an
address that sends many passwords waits for itself. A client that gives up, or runs out
of time, is not checked any more. A name that nobody has costs as much as one that somebody has
(`Passwords.refuse`).
"""

import asyncio
import hmac
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from slipstream.engine.session.session import ClientSession

PREFIXES = ("$2a$", "$2b$", "$2x$", "$2y$")
_NO_SALT = "." * 22
_NO_DIGEST = "." * 31
Done = Callable[[bool], None]
Turn = Callable[[Callable[[], None]], None]  # runs a callback as a turn of the engine


def is_hash(kept: str) -> bool:
    """Whether a configured password is a bcrypt hash."""
    return kept.startswith(PREFIXES)


@dataclass(slots=True)
class _Check:
    """A password that somebody sent, to be compared with what is kept."""

    session: ClientSession
    kept: str
    given: str
    done: Done


class Passwords:
    """Compares passwords. `all_kept` are those that are configured; `turn` runs `done`."""

    def __init__(self, all_kept: Iterable[str], turn: Turn) -> None:
        self._turn = turn
        costs = [kept[4:6] for kept in all_kept if is_hash(kept) and kept[4:6].isdigit()]
        # What a wrong name is compared with; it takes as long as the longest of the others.
        self._nobodys = f"$2b${max(costs)}${_NO_SALT}{_NO_DIGEST}" if costs else ""
        self.threads_max = max(_processors() - 1, 1)
        self._running = 0
        self._lines: dict[str, deque[_Check]] = {}  # by address, whose turn it is first

    def check(self, session: ClientSession, kept: str, given: str, done: Done) -> None:
        """Compare `given` with what is `kept`, and say so to `done`, now or later."""
        if is_hash(kept):
            self._queue(_Check(session, kept, given, done))
        elif hmac.compare_digest(kept.encode(), given.encode("utf-8", "surrogatepass")):
            done(True)
        else:
            self.refuse(session, given, done)

    def refuse(self, session: ClientSession, given: str, done: Done) -> None:
        """Say no as late as if there were a password to compare with."""
        if self._nobodys:
            self._queue(_Check(session, self._nobodys, given, lambda is_same: done(False)))
        else:
            done(False)

    def waiting(self) -> int:
        """Checks that have not begun."""
        return sum(map(len, self._lines.values()))

    def _queue(self, check: _Check) -> None:
        self._lines.setdefault(check.session.facts.get("ip", ""), deque()).append(check)
        self._run_next()

    def _next(self) -> _Check | None:
        """The first of the address whose turn it is, if that client is still there."""
        while self._lines:
            address = next(iter(self._lines))
            line = self._lines.pop(address)
            check = line.popleft()
            if line:
                self._lines[address] = line  # after all the others
            if not check.session.closed:
                return check
        return None

    def _run_next(self) -> None:
        if self._running >= self.threads_max:
            return
        check = self._next()
        if check is None:
            return
        self._running += 1
        loop = asyncio.get_running_loop()
        name = "slipstream-password"
        Thread(target=self._run, args=(loop, check), name=name, daemon=True).start()

    def _run(self, loop: asyncio.AbstractEventLoop, check: _Check) -> None:
        """On a thread of its own."""
        is_same = _matches(check.kept, check.given)
        with suppress(RuntimeError):  # the loop is closed: the server has ended meanwhile
            loop.call_soon_threadsafe(self._end, check, is_same)

    def _end(self, check: _Check, is_same: bool) -> None:
        self._running -= 1
        self._turn(lambda: check.done(is_same))
        self._run_next()


def _matches(kept: str, given: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(_bytes(given)[:72], kept.replace("$2x$", "$2b$").encode())
    except ValueError:
        return False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
