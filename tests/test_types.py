"""What the type checkers of users see: mypy and pyright read programs as users write them."""

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.pages import blocks

ROOT = Path(__file__).parents[1]
TYPED = ROOT / "tests" / "typed"
# Arguments that are lengths of time, wherever they stand in the API.
TIMES = {"delay", "expires", "heartbeat", "older_than", "stall", "timeout", "ttl", "until"}

pytestmark = [
    pytest.mark.skipif(not (ROOT / "src").exists(), reason="the sources are not beside the tests"),
    pytest.mark.xdist_group("mypy"),
]


# What the tests that run a page's examples have given them, too.
GIVEN = """\
import typing
import slipstream
from slipstream import Server

js: slipstream.JetStream
connection: slipstream.Connection
url: str
port: int
folder: str
checkpoint: str
text: str
spark: typing.Any  # Spark's frames are of any type to a checker
accounts: typing.Any
orders: typing.Any
parcels: typing.Any
payments: typing.Any
prices: typing.Any
rows: typing.Any

class Order: ...

async def page() -> None:
"""


def page_of(examples: list[str]) -> str:
    """The examples of a page as one program."""
    return GIVEN + "".join(indent(dedent(example), "    ") for example in examples)


def findings(*paths: Path) -> list[str]:
    """What mypy finds in the programs, with the package's sources beside them."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, paths)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def pyright_findings(folder: Path, *paths: Path) -> list[str]:
    """What pyright finds in the programs, with its own defaults; `folder` is for its settings."""
    settings = {
        "include": [str(path) for path in paths],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "reportUnnecessaryTypeIgnoreComment": "error",  # of a mistake that it does not find
        "reportMissingImports": "none",  # a page's module may import another one of the page
        "reportMissingModuleSource": "none",
        "reportPrivateImportUsage": "none",  # PySpark's names, where its own pages have them
        "reportUnusedExpression": "none",  # Airflow's `a >> b`
        "useLibraryCodeForTypes": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson"),
            *("--project", str(folder), "--pythonpath", sys.executable),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] > 0
    return [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in said["generalDiagnostics"]
    ]


def documented_programs(folder: Path) -> Path:
    """A package in `folder` with a module for each page that has examples, and for the README."""
    documented = folder / "documented"
    documented.mkdir()
    (documented / "__init__.py").touch()
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if blocks(page.name)]
    assert len(pages) > 7
    for page in pages:
        name = page.removesuffix(".md").replace("-", "_")
        (documented / f"{name}.py").write_text(page_of(blocks(page)))
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (documented / "readme.py").write_text(page_of(readme))
    return documented


@pytest.mark.timeout(600)
def test_mypy_knows_what_users_do_and_finds_their_mistakes(tmp_path: Path) -> None:
    """One run, of the programs in tests/typed and of every page's examples."""
    assert findings(TYPED, documented_programs(tmp_path)) == []


@pytest.mark.timeout(600)
def test_pyright_knows_what_users_do_and_finds_their_mistakes(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    assert pyright_findings(tmp_path, TYPED, documented_programs(tmp_path)) == []


def test_the_keywords_of_configurations_are_those_that_are_generated() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_keywords.py"))
    for path, classes in tool["FILES"].items():
        assert path.read_text() == tool["text"](classes), "run tools/generate_keywords.py"


def test_the_types_of_the_api_without_await_are_those_that_are_generated() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "generate_sync_types.py"))
    made = tool["TARGET"].read_text()
    assert made == tool["text"](), "run tools/generate_sync_types.py"


def test_every_length_of_time_is_seconds_or_a_timedelta() -> None:
    tree = ast.parse((ROOT / "src" / "slipstream" / "sync.pyi").read_text())
    given = [
        (function.name, one.arg, ast.unparse(one.annotation))
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for one in [*function.args.args, *function.args.kwonlyargs]
        if one.arg in TIMES and one.annotation is not None
    ]
    assert len(given) > 30
    assert [one for one in given if not {"Seconds", "timedelta"} & set(one[2].split(" | "))] == []
