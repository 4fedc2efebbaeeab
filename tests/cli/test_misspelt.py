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
        ("cons", "did you mean consumer or console?"),
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
    ("line", "meant"),
    [
        ("--jsn stream ls", '"--jsn"; did you mean --json?'),
        ("stream ls --jsn", "--jsn; did you mean --json?"),
        ("--sorver x stream ls", '"--sorver"; did you mean --server?'),
        ("stream ls --sorver=x", "--sorver; did you mean --server?"),
        ("--versoin", '"--versoin"; did you mean --version?'),
        ("stream ls --server", "--server needs a value"),
        ("stream ls --timeout soon", '--timeout (NATS_TIMEOUT): "soon" is no duration'),
        ("stream ls --context x --no-context -s nats://h:x", "--server (NATS_URL, context): "),
        ("stream ls -s http://h", "the scheme 'http' is not known"),
        ("stream ls -s nats://h:99999", "Port out of range"),
    ],
)
def test_a_mistake_in_an_option_of_the_connection_names_it_and_the_help_that_has_it(
    capsys: pytest.CaptureFixture[str], line: str, meant: str
) -> None:
    said = _said(capsys, *line.split())
    assert meant in said
    assert "`slipstream --help`" in said


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["stream"], "Manage streams"),
        (["str", "add"], "--subjects"),
        (["serve"], "Usage: slipstream serve"),
    ],
)
def test_help_about_a_command_is_that_of_the_command(
    capsys: pytest.CaptureFixture[str], words: list[str], shown: str
) -> None:
    assert main(["help", *words]) == OK
    assert shown in capsys.readouterr().out
    assert "did you mean stream?" in _said(capsys, "help", "strem")


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
