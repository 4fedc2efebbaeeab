"""Slipstream: JetStream for Python. Server, client, CLI and Spark pipeline in one package.

Names are imported on first use, so that `import slipstream` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slipstream.errors import Error

if TYPE_CHECKING:
    from slipstream.server import Server as Server

__version__ = "0.1.0"
__all__ = ["Error", "Server", "__version__"]

_HOME_OF = {"Server": "slipstream.server"}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    return getattr(import_module(home), name)
