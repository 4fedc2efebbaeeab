"""The rules of the house that a machine can check; CONTRIBUTING.md gives the reasons."""

import ast
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream import build
from slipstream.model.error_codes import ErrorCode

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "slipstream"
PYTHON_FILES = sorted(SOURCE.rglob("*.py"))
LINES_NOTABLE_FILE = 800
LINES_NOTABLE_FUNCTION = 80
ANY_MAX = 942  # how often the sources say Any; to be lowered as they say it less often
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "misc", "common"}
# Texts for people that happen to have the name of a field in them.
OF_A_TEXT = {b"Nats-Pin-Id", b"Nats-Msg-Id", b"Nats-Sequence"}
GENERATED = "This file is generated"

pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason="the sources are not beside the tests")


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _is_ours(folder: Path) -> bool:
    """Whether a folder beside the sources belongs to them, and not to a tool or an environment."""
    is_environment = (folder / "pyvenv.cfg").exists()
    return folder.name != "build" and not folder.name.startswith(".") and not is_environment


def test_long_files_and_functions_are_reported() -> None:
    """Cohesion decides how long a file is, so a long one is worth a look and no more."""
    for path in [*PYTHON_FILES, *SOURCE.rglob("*.pyx")]:
        text = path.read_text()
        if text.count("\n") > LINES_NOTABLE_FILE and GENERATED not in text[:300]:
            _report(path, 1, "the file", text.count("\n"))
    for path in PYTHON_FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LINES_NOTABLE_FUNCTION:
                    _report(path, node.lineno, node.name, lines)


def _report(path: Path, line: int, what: str, lines: int) -> None:
    warnings.warn(f"{_relative(path)}:{line}: {what} has {lines} lines", stacklevel=2)


def test_names_say_what_is_inside() -> None:
    assert not [_relative(p) for p in SOURCE.rglob("*") if p.stem in NAMES_THAT_SAY_NOTHING]


def test_every_module_says_what_it_is_about() -> None:
    silent = [
        _relative(p)
        for p in PYTHON_FILES
        if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not silent


def test_any_stands_for_a_type_no_more_often_than_it_did() -> None:
    names = [node for p in PYTHON_FILES for node in ast.walk(ast.parse(p.read_text()))]
    found = sum(isinstance(node, ast.Name) and node.id == "Any" for node in names)
    assert found <= ANY_MAX, "say the type, or `object` where there is none to say"


@pytest.mark.parametrize("package", ["engine", "group"])
def test_state_machines_import_neither_asyncio_nor_os_nor_time(package: str) -> None:
    forbidden = re.compile(
        r"^\s*(?:import|from|cimport)\s+(asyncio|os|time|socket|threading|uvloop)\b", re.M
    )
    found = {
        _relative(p): match.group(1)
        for p in (SOURCE / package).rglob("*.p*")
        if p.suffix in {".py", ".pyx", ".pxd"} and (match := forbidden.search(p.read_text()))
    }
    assert not found


def test_errors_of_the_api_have_names_and_no_numbers() -> None:
    number = re.compile(rf"\b(?:{'|'.join(str(int(code)) for code in ErrorCode)})\b")
    found = {
        _relative(p): match[0]
        for p in SOURCE.rglob("*.p*")
        if p.suffix in {".py", ".pyx", ".pxd"}
        and p != SOURCE / "model" / "error_codes.py"
        and (match := number.search(p.read_text()))
    }
    assert not found


def test_header_fields_have_names_that_are_spelled_once() -> None:
    """In one module a name may stand as it is; what two know stands in `header_fields`."""
    owner = SOURCE / "model" / "header_fields.py"
    spelled: dict[bytes, set[str]] = {}
    for path in PYTHON_FILES:
        for text in _texts(path):
            for name in re.findall(rb"\bNats-(?:[A-Z][A-Za-z]+-?)+", text):
                spelled.setdefault(name, set()).add(_relative(path))
    named = {name: places for name, places in spelled.items() if _relative(owner) in places}
    again = {name: places for name, places in spelled.items() if len(places) > 1}
    assert not {name: places for name, places in again.items() if name not in OF_A_TEXT}
    assert len(named) > 30


def _texts(path: Path) -> Iterator[bytes]:
    """The texts in a module's code, without those that only describe it."""
    tree = ast.parse(path.read_text())
    described = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in described:
            if isinstance(node.value, str):
                yield node.value.encode()
            elif isinstance(node.value, bytes):
                yield node.value


def test_nothing_names_a_path_of_a_machine() -> None:
    machine_path = re.compile(r"/(?:work|farm|root|home)/[\w.]")
    suffixes = {".py", ".pyx", ".pxd", ".md", ".toml"}
    folders = [p for p in ROOT.iterdir() if p.is_dir() and _is_ours(p)]
    files = [*ROOT.iterdir(), *(p for folder in folders for p in folder.rglob("*"))]
    ours = [p for p in files if p.suffix in suffixes and "node_modules" not in p.parts]
    assert not [
        _relative(p)
        for p in ours
        if machine_path.search(p.read_text()) and p.name != "test_house.py"
    ]


def test_each_listed_module_is_an_extension_in_the_compiled_build() -> None:
    described = build.describe()
    assert described in {"compiled", "plain"}


def test_a_leaf_on_raw_memory_has_a_plain_twin() -> None:
    assert not [_relative(p) for p in SOURCE.rglob("*.pyx") if not p.with_suffix(".py").exists()]
