"""What a comment, a docstring or a page refers to is there: pages, sections, files, decisions.

A reference to a page is its path from the root of the repository, from docs/, or from the page that
refers to it, with the section as a link has it: `docs/protocol/consumers.md#push`. A file of the
code is named by its path from the root, from src/slipstream, from tests, or from docs.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BASES = (ROOT, DOCS, ROOT / "src" / "slipstream", ROOT / "tests", ROOT / "src")
CODE = ("src", "tests", "bench", "examples", "tools", "fuzz")
PAGE = re.compile(r"(?<![\w/:.-])((?:\.\./)*[\w-]+(?:/[\w.-]+)*\.md)(#[\w-]+)?")
LINK = re.compile(r"\]\(([^)\s:]*)\)")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:pyx|pxd|py|md|json|yml|yaml|sh|toml|rs|c))`")
DECISION = re.compile(r"\bADR[- ](\d+)")
NUMBERED = re.compile(r"\.md`?,? (?:§|[Ss]ections? |chapter )?\d|\bspec [\w-]+\.md")

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the docs are not beside the tests")


def pages() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(DOCS.rglob("*.md")),
        *sorted(ROOT.glob("bench/*.md")),
    ]


def sources() -> list[Path]:
    found = [path for folder in CODE for path in (ROOT / folder).rglob("*.p*")]
    return sorted(path for path in found if path.suffix in {".py", ".pyx", ".pxd"})


@cache
def sections(page: Path) -> frozenset[str]:
    """What a link may have behind `#`: its headings, as GitHub spells them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


@cache
def commentary(path: Path) -> str:
    """The comments and docstrings of a module; all of one in Cython, which `ast` cannot read."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    nodes = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    return "\n".join([*comments, *(ast.get_docstring(node) or "" for node in documented)])


def is_there(name: str, section: str, beside: Path) -> bool:
    for base in (beside, *BASES):
        page = (base / name).resolve()
        if page.is_file():
            return not section or section[1:] in sections(page)
    return False


def unresolved(text: str, beside: Path) -> Iterator[str]:
    """What `text` refers to and is not there; `beside` is the folder of its file."""
    for name, section in PAGE.findall(text):
        if not is_there(name, section, beside):
            yield name + section
    for name in FILE.findall(text):
        if not is_there(name, "", beside):
            yield name
    yield from (found.group() for found in NUMBERED.finditer(text))


@pytest.mark.parametrize("folder", CODE)
def test_what_comments_and_docstrings_refer_to_is_there(folder: str) -> None:
    inside = [path for path in sources() if path.is_relative_to(ROOT / folder)]
    assert inside
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in inside
        if path != Path(__file__)
        for name in unresolved(commentary(path), path.parent)
    }
    assert not missing


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_refers_to_is_there(page: Path) -> None:
    text = page.read_text()
    links = [link.partition("#") for link in LINK.findall(text)]
    broken = [
        name + hash_ + section
        for name, hash_, section in links
        if not (page.parent / name).exists()
        or (section and section not in sections((page.parent / name) if name else page))
    ]
    assert not [*broken, *unresolved(LINK.sub("]", text), page.parent)]


def test_each_decision_of_nats_that_is_named_is_in_the_table_of_decisions() -> None:
    table = (DOCS / "compatibility.md").read_text()
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    known = {number for row in rows for number in row.split(", ")}
    named = {number for path in sources() for number in DECISION.findall(commentary(path))}
    assert named
    assert named <= known


@pytest.mark.parametrize(
    "text",
    [
        "docs/protocol/consumers.md#pushes",
        "docs/no_such_page.md",
        "streams.md section 7",
        "(spec streams.md)",
        "`engine/no_such_file.py`",
    ],
)
def test_a_reference_to_nothing_is_found(text: str) -> None:
    assert list(unresolved(text, DOCS))


@pytest.mark.parametrize(
    "text",
    ["docs/protocol/consumers.md#push", "storage.md", "`engine/engine.py`", "http://a.b/c.md"],
)
def test_a_reference_to_what_is_there_is_none_to_nothing(text: str) -> None:
    assert not list(unresolved(text, DOCS))
