"""The examples of the documentation, as tests run them."""

import ast
import inspect
import re
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINES_MAX_FIRST = 10


def blocks(page: str) -> list[str]:
    """The Python examples of a page in docs/, in their order; none if the docs are not here."""
    path = ROOT / "docs" / page
    text = path.read_text() if path.exists() else ""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


async def run(block: str, names: dict[str, Any]) -> None:
    """Run an example as the inside of an `async def`; it sees and adds to `names`."""
    code = compile(block, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = types.FunctionType(code, names)()
    if inspect.isawaitable(made):
        await made
