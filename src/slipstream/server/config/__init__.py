"""The configuration file: `grammar` reads it, `directives` know what it means, `load` does both.

`reload` says what is different between two configurations and what a running server can take over.
"""

from slipstream.server.config.load import Loaded, check_file, load_file, load_options, load_text
from slipstream.server.config.reload import Change, changes, plan_reload

__all__ = [
    "Change",
    "Loaded",
    "changes",
    "check_file",
    "load_file",
    "load_options",
    "load_text",
    "plan_reload",
]
