"""The packages that schemas need beyond the base install."""

from importlib import import_module
from types import ModuleType

from slipstream.client.arrow.batches import MissingPackageError


def require(package: str) -> ModuleType:
    """A package of the extra `schemas`. Raises `MissingPackageError`, which names the extra."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"schemas need {package}, which is not installed: pip install 'slipstream[schemas]'"
        ) from error
