"""The package twice in one process: plain Python that can be watched, and the compiled modules."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

SOURCE = str(Path(__file__).parent.parent / "src")
PACKAGE = "slipstream"


class Build:
    """One instance of the package: ``build("slipstream.wire.headers")`` is a module of it.

    The compiled one is what `import` finds anyway: an extension can be loaded only once. The plain
    one is kept apart from it. `around` is entered while modules of it are imported.
    """

    def __init__(
        self,
        plain: bool,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._plain = plain
        self._around = around
        self._modules: dict[str, ModuleType] = {}

    def __call__(self, name: str) -> ModuleType:
        with self.current(), self._around():
            return import_module(name)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Meanwhile `import` finds this build: for functions that import when they are called."""
        if not self._plain:
            yield
            return
        others = _take_modules()
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, _SourceOnly)
        try:
            yield
        finally:
            sys.meta_path.remove(_SourceOnly)
            self._modules = _take_modules()
            sys.modules.update(others)


class _SourceOnly:
    """Finds the package's `.py` files, also where an extension lies beside them."""

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        directory = Path(SOURCE, *name.split(".")[:-1])
        finder = FileFinder(str(directory), (SourceFileLoader, SOURCE_SUFFIXES))
        return finder.find_spec(name)


def _take_modules() -> dict[str, ModuleType]:
    """The package's modules, which `sys.modules` forgets."""
    names = [name for name in sys.modules if name.partition(".")[0] == PACKAGE]
    return {name: sys.modules.pop(name) for name in names}
