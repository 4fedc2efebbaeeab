"""The configuration file: `grammar` reads it, `directives` know what it means, `load` does both."""

from slipstream.server.config.load import (
    Change,
    Loaded,
    changes,
    check_file,
    load_file,
    load_options,
    load_text,
)

__all__ = ["Change", "Loaded", "changes", "check_file", "load_file", "load_options", "load_text"]
