"""Every example in the client's documentation runs, and the first of each chapter is short."""

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import slipstream

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


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs(name: str, jetstream_url: str) -> None:
    code = compile(EXAMPLES[name], name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with await slipstream.connect(jetstream_url) as nc:
        names: dict[str, Any] = {"slipstream": slipstream, "url": jetstream_url, "nc": nc}
        async with asyncio.timeout(10):
            result = eval(code, names)
            if asyncio.iscoroutine(result):
                await result


@pytest.mark.parametrize("title", chapters())
def test_the_first_example_of_a_chapter_fits_ten_lines(title: str) -> None:
    assert chapters()[title][0].rstrip().count("\n") < LINES_MAX_FIRST
