"""The plain twin of a compiled leaf, loaded beside it, whichever build is under test."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import slipstream.log.record as record

SOURCE = Path(record.__file__).parent
PREFIX = "plain_twin_of_"


def load_twins() -> tuple[ModuleType, ModuleType, ModuleType]:
    """`subject_index`, `columns` and `record` as plain Python, with what they stand on."""
    modules = []
    replaced = {}
    for name in ("subject_shape", "subject_index", "columns", "record"):
        spec = importlib.util.spec_from_file_location(PREFIX + name, SOURCE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
        full = f"slipstream.log.{name}"
        replaced[full] = sys.modules.get(full)
        sys.modules[full] = module  # so that the next twin imports this one
    for full, original in replaced.items():
        if original is not None:
            sys.modules[full] = original
    return modules[1], modules[2], modules[3]
