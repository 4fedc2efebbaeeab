"""The plain twins of the log's compiled leaves, loaded beside them."""

import sys
from types import ModuleType

from tests.plain_twin import plain_twin


def load_twins() -> tuple[ModuleType, ModuleType, ModuleType]:
    """`subject_index`, `columns` and `record` as plain Python, with what they stand on."""
    modules = []
    replaced = {}
    for name in ("subject_shape", "subject_index", "columns", "record"):
        full = f"slipstream.log.{name}"
        module = plain_twin(full)
        modules.append(module)
        replaced[full] = sys.modules.get(full)
        sys.modules[full] = module  # so that the next twin imports this one
    for full, original in replaced.items():
        if original is not None:
            sys.modules[full] = original
    return modules[1], modules[2], modules[3]
