"""What is written wrong is refused, with what was probably meant."""

import pytest

from slipstream import __version__
from slipstream.cli.main import MISUSED, OK, main
from tests.cli.conftest import Cli


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == MISUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("strem", "did you mean stream?"),
        ("cons", "did you mean consumer?"),
        ("publsh", "did you mean pub?"),
        ("s3", "`slipstream --help` lists them"),
    ],
)
def test_a_misspelt_command_names_what_was_meant(
    capsys: pytest.CaptureFixture[str], word: str, meant: str
) -> None:
    assert meant in _said(capsys, word, "ls")


def test_a_misspelt_sub_command_or_option_names_what_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "Did you mean" in _said(capsys, "stream", "inof", "ORDERS")
    assert "--subjects" in _said(capsys, "stream", "add", "ORDERS", "--subject", "a")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--jetsream", "did you mean --jetstream?"),
        ("-stor_dir=x", "did you mean --store_dir?"),
        ("--nonsense", "flag provided but not defined: -nonsense"),
        ("--port", "flag needs an argument: -port"),
    ],
)
def test_serve_refuses_a_flag_that_it_does_not_know(
    capsys: pytest.CaptureFixture[str], flag: str, meant: str
) -> None:
    assert meant in _said(capsys, "serve", flag)


def test_serve_still_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == OK
    assert "Usage: slipstream serve" in capsys.readouterr().out


def test_the_package_runs_as_a_module(offline: Cli) -> None:
    assert offline.command(())[1:] == ["-m", "slipstream"]
    assert offline("--version").out.startswith(f"slipstream {__version__} (")
