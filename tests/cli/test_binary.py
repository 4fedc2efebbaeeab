"""Bytes that are no text go in and come out as they are."""

import base64
import json
import subprocess
from typing import Any

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


def test_a_body_that_is_no_text_is_base64_in_json(cli: Cli) -> None:
    cli("stream", "add", "RAW", "--subjects", "raw", "--defaults", "--storage", "memory")
    cli("consumer", "add", "RAW", "c", "--pull", "--defaults")
    _run(cli, "pub", "raw", "--jetstream", stdin=BINARY)
    _run(cli, "pub", "raw", "--jetstream", stdin="é".encode())
    for words in (("consumer", "next", "RAW", "c", "--no-ack"), ("sub", "raw", "--all")):
        first, second = _objects(cli(*words, "--count", "2", "--json").out)
        assert (base64.b64decode(first["data"]), first["encoding"]) == (BINARY, "base64")
        assert second["data"] == "é"
        assert "encoding" not in second
    cli("stream", "rm", "RAW", "--force")


def _objects(text: str) -> list[dict[str, Any]]:
    """JSON objects, one after the other."""
    found = []
    while text := text.strip():
        one, end = json.JSONDecoder().raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


def test_a_value_that_is_no_text_is_base64_in_json(cli: Cli) -> None:
    cli("kv", "add", "BIN", "--history", "2")
    cli("kv", "put", "BIN", "key", "text")
    _run(cli, "kv", "put", "BIN", "key", stdin=BINARY)
    found = json.loads(cli("kv", "get", "BIN", "key", "--json").out)
    assert (base64.b64decode(found["value"]), found["encoding"]) == (BINARY, "base64")
    history = json.loads(cli("kv", "history", "BIN", "key", "--json").out)
    assert [one.get("encoding") for one in history] == [None, "base64"]
    assert history[0]["value"] == "text"
    cli("kv", "rm", "BIN", "--force")
