"""docs/operations.md knows every problem that a server reports, by the words that it uses."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipstream

SOURCE = Path(slipstream.__file__).parent
PAGE = Path(__file__).parent.parent.parent / "docs" / "operations.md"
WORDS_MIN = 3  # shorter pieces of a message say nothing by themselves

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not beside the tests")


def texts(node: ast.AST) -> Iterator[str]:
    """The constant pieces of each text below a node; what is put in stands between them."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.JoinedStr):
            yield "…".join(part.value for part in inner.values if isinstance(part, ast.Constant))
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def sources() -> Iterator[ast.Module]:
    for folder in ("engine", "log", "server/monitoring"):
        for path in (SOURCE / folder).rglob("*.py"):
            yield ast.parse(path.read_text())


def messages_of_the_page() -> list[str]:
    section = PAGE.read_text().split("## When `/healthz` is red")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def test_each_message_of_the_page_is_one_of_the_servers() -> None:
    known = "\n".join(text for module in sources() for text in texts(module))
    assert len(messages_of_the_page()) > 15
    for message in messages_of_the_page():
        for piece in message.split("…"):
            assert piece.strip() in known, message


def test_each_problem_that_is_reported_is_on_the_page() -> None:
    pieces = [piece.strip() for text in messages_of_the_page() for piece in text.split("…")]
    for module in sources():
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "problem":
                found = [t for t in texts(call) if len(re.findall("[a-z]{3,}", t)) >= WORDS_MIN]
                known = any(piece in text for text in found for piece in pieces)
                assert known or not found, found
