"""The fuzz targets hold on what they begin with and on what was found by them."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from fuzz.builds import Build
from fuzz.target import Choices, Finding, agree, outcome
from fuzz.targets import NAMES

FOUND = Path(__file__).parent.parent / "fuzz" / "found"


@pytest.fixture(scope="module")
def builds() -> Iterator[tuple[Build, Build]]:
    """The plain build, and the one under test."""
    return Build(plain=True), Build(plain=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_target_holds_on_its_seeds_and_on_what_was_found(
    builds: tuple[Build, Build], name: str
) -> None:
    target = import_module(f"fuzz.targets.{name}")
    one_input = target.make(*builds)
    inputs = target.seeds() + [file.read_bytes() for file in sorted(FOUND.glob(f"{name}/*"))]
    for data in inputs:
        one_input(data)
    one_input(b"")


def test_a_module_comes_from_the_build_that_was_asked(builds: tuple[Build, Build]) -> None:
    plain, tested = (build("slipstream.wire.buffer") for build in builds)
    assert (plain.__file__ or "").endswith(".py")
    assert plain.OutBuffer is not tested.OutBuffer
    assert import_module("slipstream.wire.buffer") is tested


def test_a_difference_between_the_builds_is_a_finding() -> None:
    agree("the same", [1], [1])
    with pytest.raises(Finding, match="compiled: 2"):
        agree("not the same", 1, 2)


def test_only_documented_exceptions_are_outcomes() -> None:
    assert outcome(ValueError, int, "7") == 7
    assert outcome((IndexError, ValueError), int, "x") == "raises ValueError"
    with pytest.raises(ZeroDivisionError):
        outcome(ValueError, divmod, 1, 0)


def test_decisions_go_on_after_the_end_of_an_input() -> None:
    choices = Choices(b"\x03ab")
    assert choices.text(10) == b"ab"
    assert (choices.byte(), choices.below(1000), choices.pick("xyz"), choices.left()) == (
        0, 0, "x", 0,
    )  # fmt: skip
    assert (choices.some(5), choices.rest()) == (b"", b"")
