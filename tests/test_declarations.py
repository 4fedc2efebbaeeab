"""Each `.pxd` declares what its `.py` has: classes, attributes, methods and their arguments.

Where there is a `.pyx`, Cython compares that with the `.pxd`, and the `.py` is its plain twin: it
has to offer what Python sees of the compiled class.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import pytest

from tests.plain_twin import plain_twin

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "slipstream"
INLINE_ONLY = {"keyed_hash", "memory"}  # C functions for other modules; no module of that name

pytestmark = pytest.mark.skipif(
    not list(SOURCE.rglob("*.pxd")), reason="the declarations are not beside the modules"
)


@dataclass
class Declared:
    """A class, or a module's functions: a function's argument names, by its own name."""

    bases: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    visible: set[str] = field(default_factory=set)  # attributes that Python sees
    functions: dict[str, list[str]] = field(default_factory=dict)
    python_functions: set[str] = field(default_factory=set)  # what Python may call


CLASS = re.compile(r"cdef class (\w+)(?:\(([\w, ]*)\))?:")
FUNCTION = re.compile(r"(cp?def) (?:inline )?[^=(]*?\*{0,2}(\w+)\((.*)\)[^()]*$")
C_NAMES = re.compile(r"^cdef (?!class |inline )[^():\n]*?((?:\w+, )*\w+)[ ]*(?:#.*)?$", re.M)
ATTRIBUTE = re.compile(r"cdef (?:(public|readonly) )?([^()]+)$")


def _statements(text: str) -> Iterator[str]:
    """The lines of a `.pxd` without comments; a statement in parentheses is one line."""
    gathered = ""
    for line in text.splitlines():
        gathered += re.sub(r"#.*", "", line).rstrip() if not gathered else " " + line.strip()
        if gathered.count("(") == gathered.count(")"):
            yield gathered
            gathered = ""


def _argument(text: str) -> str:
    name = re.search(r"(\w+)\s*(?:=.*)?$", text.strip())
    assert name is not None, text
    return name[1]


def declared(text: str) -> dict[str, Declared]:
    """What a `.pxd` declares by class; the module's functions under ""."""
    found = {"": Declared()}
    scope = found[""]
    skipped = -1  # how far a block is indented that has no attributes: an enum, a struct, a body
    for line in _statements(text):
        indent, statement = len(line) - len(line.lstrip()), line.strip()
        if not statement or statement.startswith(("@", "import", "from")):
            continue
        if skipped >= 0 and indent > skipped:
            continue
        skipped = -1
        if indent == 0:
            scope = found[""]
        if named := CLASS.match(statement):
            bases = [base.strip() for base in (named[2] or "").split(",") if base.strip()]
            scope = found[named[1]] = Declared(bases)
        elif statement.endswith(":"):
            skipped = indent
        elif function := FUNCTION.match(statement):
            names = [_argument(one) for one in function[3].split(",") if one.strip()]
            scope.functions[function[2]] = names
            if function[1] == "cpdef":
                scope.python_functions.add(function[2])
        elif (attribute := ATTRIBUTE.match(statement)) and scope is not found[""]:
            names = {_argument(re.sub(r"\[.*?\]", "", one)) for one in attribute[2].split(",")}
            scope.attributes |= names
            scope.visible |= names if attribute[1] else set()
    return found


def _arguments(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _assigned(node: ast.ClassDef) -> Iterator[str]:
    """The attributes that a class gives `self`, or names in its body."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            if isinstance(inner.value, ast.Name) and inner.value.id == "self":
                yield inner.attr
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id


def written(text: str) -> dict[str, Declared]:
    """What a `.py` has by class; the module's functions under ""."""
    module = ast.parse(text)
    found = {"": Declared()}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            found[""].functions[node.name] = _arguments(node)
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            scope = found[node.name] = Declared(bases, set(_assigned(node)))
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    scope.functions[inner.name] = _arguments(inner)
    return found


DECLARATIONS = {
    str(path.relative_to(SOURCE).with_suffix("")): path
    for path in sorted(SOURCE.rglob("*.pxd"))
    if path.stem not in INLINE_ONLY
}
EVERY_CLASS = {
    name: scope
    for path in DECLARATIONS.values()
    for name, scope in declared(path.read_text()).items()
    if name
}


def _with_bases(scope: Declared) -> set[str]:
    """A class's attributes and those of its compiled bases."""
    names = set(scope.attributes)
    for base in scope.bases:
        names |= _with_bases(EVERY_CLASS[base]) if base in EVERY_CLASS else set()
    return names


@pytest.mark.parametrize("module", DECLARATIONS)
def test_a_declaration_has_the_functions_and_arguments_of_its_module(module: str) -> None:
    path = DECLARATIONS[module]
    is_twin = path.with_suffix(".pyx").exists()
    python = written(path.with_suffix(".py").read_text())
    for name, scope in declared(path.read_text()).items():
        offered = scope.python_functions if is_twin else scope.functions.keys()
        if not offered and name not in python:
            assert is_twin, f"{name} is declared, and not in the .py"
            continue
        own = python[name].functions
        wanted = {function: scope.functions[function] for function in offered}
        assert {function: own.get(function) for function in wanted} == wanted, name


@pytest.mark.parametrize("module", DECLARATIONS)
def test_a_declaration_has_the_attributes_of_its_classes(module: str) -> None:
    path = DECLARATIONS[module]
    is_twin = path.with_suffix(".pyx").exists()
    python = written(path.with_suffix(".py").read_text())
    for name, scope in declared(path.read_text()).items():
        if not name or name not in python:
            continue
        own = python[name]
        if is_twin:
            assert scope.visible <= own.attributes | own.functions.keys(), name
        else:
            assert own.bases == scope.bases or not scope.bases, name
            assert scope.attributes - own.attributes == set(), f"{name} never sets these"
            assert own.attributes <= _with_bases(scope), f"{name} sets what is not declared"


def test_nobody_imports_a_name_that_is_of_c_alone() -> None:
    of_c = {
        (f"slipstream.{module.replace('/', '.')}", name)
        for module, path in DECLARATIONS.items()
        for names in C_NAMES.findall(path.read_text())
        for name in names.split(", ")
    }
    imported = {
        (node.module, one.name)
        for folder in ("src", "tests", "bench", "fuzz", "tools", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    assert ("slipstream.engine.rounds", "READS_MAX") in imported
    assert ("slipstream.server.turns", "ROUND_STEPS_MIN") in of_c
    assert of_c & imported == set()


@pytest.mark.parametrize("module", [str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.pyx")])
def test_a_plain_twin_offers_what_its_compiled_module_offers(module: str) -> None:
    name = "slipstream." + module.removesuffix(".pyx").replace("/", ".")
    compiled, twin = import_module(name), plain_twin(name)
    for key, value in vars(twin).items():
        if key.startswith("_") or getattr(value, "__module__", "") != twin.__name__:
            continue
        assert hasattr(compiled, key), key
        if isinstance(value, type):
            public = {one for one in dir(value) if not one.startswith("_")}
            assert public <= set(dir(getattr(compiled, key))), key


@pytest.mark.parametrize("module", ["ascii", "operations"])
def test_numbers_are_the_same_in_python_and_in_c(module: str) -> None:
    in_c = re.findall(r"^    (\w+) = (\S+)$", (SOURCE / f"wire/{module}.pxd").read_text(), re.M)
    in_python = vars(import_module(f"slipstream.wire.{module}"))
    numbers = {name: value for name, value in in_python.items() if isinstance(value, int)}
    assert numbers == {name: int(value, 0) for name, value in in_c}
