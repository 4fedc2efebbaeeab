"""The plain twins of the log's compiled leaves, loaded beside them."""

import sys
from importlib import import_module
from types import ModuleType

from tests.plain_twin import plain_twin

NAMES = ("subject_shape", "subject_index", "columns", "record")  # each stands on those before it


def load_twins() -> tuple[ModuleType, ModuleType, ModuleType]:
    """`subject_index`, `columns` and `record` as plain Python, with what they stand on."""
    originals = {
        f"slipstream.log.{name}": import_module(f"slipstream.log.{name}") for name in NAMES
    }
    modules = []
    for full in originals:
        modules.append(plain_twin(full))
        sys.modules[full] = modules[-1]  # so that the next twin imports this one
    sys.modules.update(originals)
    return modules[1], modules[2], modules[3]
