"""Imports have a direction: no cycle among modules, none among folders.

Three kinds of imports are read from the sources. Those at the top of a module run when it is
imported, and so do those of the declarations that its compiled build takes (`cimport`). Those under
TYPE_CHECKING never run, and those inside a function run when it is called. A cycle of the first
kind breaks the program; one of any kind makes a reader open every file of it.
Inside one folder, imports for types may go both ways. A factory method, such as
`Connection.jetstream`, makes an object of a folder above: its module names the type that it
returns, and imports the folder when it is first called.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parent.parent / "src"
EVERYTHING = "slipstream"
PACKAGES = ("slipstream.client", "slipstream.engine", "slipstream.log")

# For each module with factory methods, the folders whose objects they make.
FACTORIES = {
    "slipstream.client.connection": {"slipstream.client.jetstream"},
    "slipstream.client.jetstream.context": {
        "slipstream.client.kv",
        "slipstream.client.object_store",
    },
    "slipstream.client.jetstream.consumer": {"slipstream.client.arrow"},
    "slipstream.client.jetstream.stream": {"slipstream.client.arrow"},
}

CIMPORT = re.compile(r"^(?:from|cimport) (slipstream[\w.]*) (?:cimport|as) ", re.M)

pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason="the sources are not beside the tests")

Graph = dict[str, set[str]]


class Import(NamedTuple):
    """One module imports another; `runs` unless it is for types or inside a function."""

    importer: str
    imported: str
    runs: bool


def modules_of(package: str, source: Path) -> dict[str, Path]:
    """The file of each module of a package and of the folders below it."""
    folder = source / Path(*package.split("."))
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(
    node: ast.AST, runs: bool = True
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import below `node`, and whether it runs when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, runs
        is_for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from statements(child, runs and not is_for_types and not is_function)


def imports_of(package: str, source: Path = SOURCE) -> list[Import]:
    """The imports among the modules of a package.

    An import of a module of another folder also imports that folder's ``__init__``. ``from folder
    import module`` takes a name of the folder's ``__init__``, also in a module of that folder: it
    is found there only once the ``__init__`` has run, or by chance.
    """
    files = modules_of(package, source)
    found = set()
    for importer, path in files.items():
        for statement, runs in statements(ast.parse(path.read_text())):
            names = [alias.name for alias in statement.names]
            if isinstance(statement, ast.ImportFrom):
                assert not statement.level, f"{importer} has a relative import"
                whole = f"{statement.module}"
                names = [whole, *(f"{whole}.{n}" for n in names if f"{whole}.{n}" in files)]
            for name in names:
                above = [name.rsplit(".", n)[0] for n in range(name.count("."))]
                within = (importer, *(importer.rsplit(".", n)[0] for n in range(1, 9)))
                found |= {
                    Import(importer, imported, runs)
                    for imported in above
                    if imported in files and (imported == name or imported not in within)
                }
    for importer, path in files.items():
        found |= {Import(importer, imported, True) for imported in cimports_of(path) & set(files)}
    return sorted(edge for edge in found if edge.importer != edge.imported)


def cimports_of(path: Path) -> set[str]:
    """The modules of which the compiled build of a module takes C declarations: it imports them
    before it runs its first line."""
    found = set()
    for beside in (path.with_suffix(".pxd"), path.with_suffix(".pyx")):
        if beside.exists():
            found |= set(CIMPORT.findall(beside.read_text()))
    return found


def folder_of(module: str, source: Path = SOURCE) -> str:
    """The folder that holds a module; for an ``__init__`` the folder that it is the face of."""
    is_folder = (source / Path(*module.split("."))).is_dir()
    return module if is_folder else module.rpartition(".")[0]


def is_for_a_factory(edge: Import) -> bool:
    """Whether it is one that `FACTORIES` names: for types, or run when a method is called."""
    return not edge.runs and folder_of(edge.imported) in FACTORIES.get(edge.importer, ())


def cycle_in(edges: list[tuple[str, str]]) -> list[str]:
    """Some cycle, from a node back to itself; empty if there is none."""
    graph: Graph = {}
    for importer, imported in edges:
        graph.setdefault(importer, set()).add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(node) for node in error.args[1]]
    return []


def knots(edges: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs of modules of which each is imported by the other, be it through others."""
    graph: Graph = {}
    for importer, imported in edges:
        graph.setdefault(importer, set()).add(imported)
    reached: Graph = {}
    for start in graph:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        reached[start] = found
    return {(a, b) for a, below in reached.items() for b in below if a in reached.get(b, ())}


def test_no_module_imports_itself_through_others() -> None:
    edges = [(edge.importer, edge.imported) for edge in imports_of(EVERYTHING) if edge.runs]
    assert edges
    assert not cycle_in(edges)


def test_modules_that_name_each_other_for_types_are_in_one_folder() -> None:
    # The root names what the layers offer, for type checkers.
    edges = [
        (edge.importer, edge.imported)
        for edge in imports_of(EVERYTHING)
        if edge.importer != EVERYTHING and not is_for_a_factory(edge)
    ]
    assert not {(a, b) for a, b in knots(edges) if folder_of(a) != folder_of(b)}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_imports_itself_through_others_even_for_types(package: str) -> None:
    # A folder's face is the sum of its modules, and imported from above alone.
    inner = [edge for edge in imports_of(package) if edge.importer != package]
    folders = [
        (folder_of(edge.importer), folder_of(edge.imported))
        for edge in inner
        if not is_for_a_factory(edge)
    ]
    assert not cycle_in([(a, b) for a, b in folders if a != b])


def test_each_factory_is_there() -> None:
    made: dict[str, set[str]] = {}
    for package in PACKAGES:
        for edge in filter(is_for_a_factory, imports_of(package)):
            made.setdefault(edge.importer, set()).add(folder_of(edge.imported))
    assert made == FACTORIES


@pytest.mark.parametrize(
    ("files", "runs", "folders"),
    [
        ({"a": "import p.b", "b": "import p.c", "c": ""}, False, False),
        ({"a": "import p.b", "b": "import p.c", "c": "from p import a"}, True, False),
        ({"a": "import p.b", "b": "def f():\n    import p.a"}, False, False),
        (
            {"x.__init__": "from p.x import a", "x.a": "from p.x import b", "x.b": ""},
            True,
            False,
        ),
        (
            {"x.__init__": "from p.x import a", "x.a": "import p.x.b as b", "x.b": ""},
            False,
            False,
        ),
        (
            {"x.a": "from p.y import b", "y.b": "if TYPE_CHECKING:\n    from p.x.a import C"},
            False,
            True,
        ),
    ],
)
def test_cycles_of_both_kinds_are_found(
    files: dict[str, str], runs: bool, folders: bool, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "p" / Path(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        (tmp_path / "p" / "__init__.py").touch()
        path.write_text(text)
    edges = imports_of("p", tmp_path)
    between = [(folder_of(e.importer, tmp_path), folder_of(e.imported, tmp_path)) for e in edges]
    assert bool(cycle_in([(e.importer, e.imported) for e in edges if e.runs])) == runs
    apart = {
        (a, b)
        for a, b in knots([(e.importer, e.imported) for e in edges])
        if folder_of(a, tmp_path) != folder_of(b, tmp_path)
    }
    assert bool(apart) == folders
    assert bool(cycle_in([(a, b) for a, b in between if a != b])) == folders
