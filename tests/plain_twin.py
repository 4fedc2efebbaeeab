"""The plain twin of a compiled module, whichever build is under test."""

import importlib.util
from importlib import import_module
from pathlib import Path
from types import ModuleType


def plain_twin(module: str) -> ModuleType:
    """The module that `module`'s .py file makes, also where an extension wins on import."""
    package, _, name = module.rpartition(".")
    path = Path(import_module(package).__file__ or "").parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"plain_twin_of_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
