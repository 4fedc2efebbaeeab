"""Passwords kept as hashes: how many are checked at a time, whose turn it is, what a no costs."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest

from slipstream.server import passwords
from slipstream.server.passwords import Passwords

KEPT = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()


class Somebody:
    """As much of a session as a check looks at."""

    def __init__(self, ip: str) -> None:
        self.facts = {"ip": ip}
        self.closed = False


class Gate:
    """Stands for bcrypt: a check lasts until `let` says what it finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kept: list[str]) -> None:
        self.begun: list[tuple[str, str]] = []  # what is kept, what was given
        self.decided: list[str] = []
        self._answers: dict[str, bool] = {}
        self._changed = threading.Condition()
        monkeypatch.setattr(passwords, "_matches", self._match)
        self.checks = Passwords(kept, lambda action: action())

    def _match(self, kept: str, given: str) -> bool:
        with self._changed:
            self.begun.append((kept, given))
            self._changed.wait_for(lambda: given in self._answers, 60)
            return self._answers[given]

    def check(self, somebody: Somebody, given: str, kept: str = KEPT) -> None:
        self.checks.check(self._session(somebody), kept, given, self._note(given))

    def refuse(self, somebody: Somebody, given: str) -> None:
        self.checks.refuse(self._session(somebody), given, self._note(given))

    def _session(self, somebody: Somebody) -> Any:
        return somebody

    def _note(self, given: str) -> Callable[[bool], None]:
        return lambda same: self.decided.append(f"{given} {'yes' if same else 'no'}")

    async def let(self, given: str, same: bool = True) -> None:
        """The check of what was given ends, and what follows has happened."""
        with self._changed:
            self._answers[given] = same
            self._changed.notify_all()
        await self.until(lambda: any(one.startswith(given + " ") for one in self.decided))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - a thread makes it true
                await asyncio.sleep(0.001)

    def begun_with(self) -> list[str]:
        return [given for _, given in self.begun]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(monkeypatch, [KEPT, "plain"])
    gate.checks.threads_max = 1
    return gate


async def test_no_more_are_checked_at_a_time_than_there_are_threads_for(gate: Gate) -> None:
    gate.checks.threads_max = 2
    for given in ("a", "b", "c"):
        gate.check(Somebody("1.1.1.1"), given)
    await gate.until(lambda: len(gate.begun) == 2)
    assert gate.checks.waiting() == 1
    await gate.let("a")
    await gate.until(lambda: len(gate.begun) == 3)
    await gate.let("b", False)
    await gate.let("c")
    assert gate.decided == ["a yes", "b no", "c yes"]


async def test_addresses_take_turns(gate: Gate) -> None:
    for given in ("a1", "a2", "a3", "a4"):
        gate.check(Somebody("1.1.1.1"), given)
    for given in ("b1", "b2"):
        gate.check(Somebody("2.2.2.2"), given)
    order = ["a1", "a2", "b1", "a3", "b2", "a4"]
    for given in order:
        await gate.let(given)
    assert gate.begun_with() == order


async def test_who_has_gone_is_not_checked_any_more(gate: Gate) -> None:
    leaving = Somebody("1.1.1.1")
    gate.check(Somebody("1.1.1.1"), "first")
    gate.check(leaving, "leaves")
    gate.check(Somebody("1.1.1.1"), "stays")
    leaving.closed = True
    await gate.let("first")
    await gate.let("stays")
    assert gate.begun_with() == ["first", "stays"]
    assert gate.checks.waiting() == 0


async def test_a_name_that_nobody_has_costs_as_much_as_the_dearest_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dear = KEPT.replace("$04$", "$12$")
    gate = Gate(monkeypatch, [KEPT, dear, "plain", "$2a$broken"])
    gate.refuse(Somebody("1.1.1.1"), "guess")
    await gate.let("guess", True)
    ((kept, _),) = gate.begun
    assert kept.startswith("$2b$12$")
    assert len(kept) == len(KEPT)
    assert gate.decided == ["guess no"]


async def test_a_wrong_plain_password_costs_as_much_and_a_right_one_does_not_wait(
    gate: Gate,
) -> None:
    gate.check(Somebody("1.1.1.1"), "plain", kept="plain")
    assert gate.decided == ["plain yes"]
    gate.check(Somebody("1.1.1.1"), "guess", kept="plain")
    assert gate.decided == ["plain yes"]
    await gate.let("guess", True)
    assert gate.decided == ["plain yes", "guess no"]


def test_where_nothing_is_hashed_nobody_waits() -> None:
    found: list[bool] = []
    somebody: Any = Somebody("1.1.1.1")
    checks = Passwords(["plain"], lambda action: action())
    checks.refuse(somebody, "x", found.append)
    checks.check(somebody, "plain", "x", found.append)
    checks.check(somebody, "plain", "\ud800", found.append)
    checks.check(somebody, "plain", "plain", found.append)
    assert found == [False, False, False, True]


def test_a_name_that_nobody_has_is_refused_by_bcrypt_itself() -> None:
    checks = Passwords([KEPT], lambda action: action())
    assert bcrypt.checkpw(b"x", checks._nobodys.encode()) is False
