"""Bytes that are no text go in and come out as they are."""

import base64
import json
import subprocess

from tests.cli.conftest import WAIT_SECONDS, Cli

BINARY = bytes(range(256))


def _run(cli: Cli, *words: str, stdin: bytes = b"") -> bytes:
    """The output of a command that is given bytes."""
    done = subprocess.run(
        cli.command(words),
        input=stdin,
        env=cli.env,
        cwd=cli.home,
        capture_output=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _stored(cli: Cli, stream: str, sequence: int) -> bytes:
    found = json.loads(cli("stream", "get", stream, str(sequence), "--json").out)
    return base64.b64decode(found["data"])


def test_a_binary_body_is_published_as_it_came_in(cli: Cli) -> None:
    cli("stream", "add", "BIN", "--subjects", "bin", "--defaults", "--storage", "memory")
    _run(cli, "pub", "bin", "--jetstream", stdin=BINARY)
    _run(cli, "pub", "bin", "--jetstream", stdin=BINARY + b"{{Count}}")
    _run(cli, "pub", "bin", "--jetstream", "--send-on", "newline", stdin=b"\xff\r\n\xfe\n")
    bodies = [_stored(cli, "BIN", sequence) for sequence in (1, 2, 3, 4)]
    assert bodies == [BINARY, BINARY + b"1", b"\xff", b"\xfe"]
    cli("stream", "rm", "BIN", "--force")


def test_a_binary_request_comes_back_in_the_answer(cli: Cli) -> None:
    replier = cli.start("reply", "bin.reply", "<{{Request}}>", "--count", "1")
    assert replier.stderr is not None
    assert replier.stdout is not None
    assert "Listening" in replier.stderr.readline()
    answer = _run(cli, "request", "bin.reply", "--raw", stdin=b"\xff\x00\xfe")
    assert answer == b"<\xff\x00\xfe>\n"
    assert replier.wait(20) == 0
    replier.stdout.close()
    replier.stderr.close()
