"""Every example in the client's documentation runs, and the first of each chapter is short."""

import ast
import asyncio
import codeop
import re
from pathlib import Path
from typing import Any

import pytest

from slipstream.engine.protocol.options import API_LEVEL, VERSION

DOCS = Path(__file__).parents[2] / "docs"
LINES_MAX_FIRST = 10
_CHAPTER = re.compile(r"^## (.*)$", re.M)
_EXAMPLE = re.compile(r"```python\n(.*?)```", re.S)


def chapters() -> dict[str, list[str]]:
    """The examples of docs/client.md by the chapter they stand in."""
    parts = _CHAPTER.split((DOCS / "client.md").read_text())
    found = dict(zip(parts[1::2], map(_EXAMPLE.findall, parts[2::2]), strict=True))
    return {title: examples for title, examples in found.items() if examples}


EXAMPLES = {
    f"{title} {number}": example
    for title, examples in chapters().items()
    for number, example in enumerate(examples, 1)
}


async def test_the_examples_run_in_the_order_of_the_page(jetstream_url: str) -> None:
    names: dict[str, Any] = {"url": jetstream_url}
    for name, example in EXAMPLES.items():
        code = compile(example, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        async with asyncio.timeout(10):
            result = eval(code, names)
            if asyncio.iscoroutine(result):
                await result
    await names["nc"].close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_interpreter_takes_an_example_line_by_line(name: str) -> None:
    taken = codeop.CommandCompiler()
    taken.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    waiting: list[str] = []
    for line in [*EXAMPLES[name].splitlines(), ""]:
        waiting.append(line)
        if taken("\n".join(waiting)) is not None:  # a SyntaxError is what the reader would see
            waiting.clear()
    assert not any(waiting)


def test_the_page_on_compatibility_names_the_version_and_the_level_that_are_announced() -> None:
    page = (DOCS / "compatibility.md").read_text()
    assert f"version `{VERSION}` and API level `{API_LEVEL}`" in page


@pytest.mark.parametrize("title", chapters())
def test_the_first_example_of_a_chapter_fits_ten_lines(title: str) -> None:
    assert chapters()[title][0].rstrip().count("\n") < LINES_MAX_FIRST
