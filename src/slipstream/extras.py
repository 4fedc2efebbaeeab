"""Packages beyond the base install: each is imported on first use, by what needs it."""

from importlib import import_module
from types import ModuleType

from slipstream.errors import Error

# What each extra brings packages for, as messages call it.
_USERS = {
    "arrow": "Arrow batches",
    "console": "Avro bodies in the console",
    "delta": "Delta Lake tables",
    "kombu": "Celery's tasks",
    "objectstore": "object stores",
    "otel": "traces and metrics",
    "otlp": "traces and metrics of a server",
    "schemas": "schemas",
    "tables": "tables",
}


class MissingPackageError(Error, ImportError):
    """An optional package is needed for what was asked."""


def require(package: str, extra: str = "") -> ModuleType:
    """An optional package. Raises `MissingPackageError`, which says how to install it.

    `extra` is the one of ours that brings it; a package that none brings is named by itself.
    """
    try:
        return import_module(package)
    except ImportError as error:
        if extra:
            text = f"{_USERS[extra]} need {package}, which is not installed: "
            text += f"pip install 'slipstream[{extra}]'"
        else:
            text = f"{package} is needed for this and is not installed: pip install {package}"
        raise MissingPackageError(text) from error
