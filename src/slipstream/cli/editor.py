"""A text in the person's editor, and configurations as files."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from slipstream.cli.config_options import read_config
from slipstream.cli.output import note, plain
from slipstream.errors import ConfigError
from slipstream.model.documents import Document

D = TypeVar("D", bound=Document)


def edited(config: D, kind: type[D]) -> D:
    """What somebody makes of a configuration in $VISUAL, $EDITOR or vi.

    Raises `ConfigError` if the editor fails, or what it leaves cannot be read.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "configuration.json")
        path.write_bytes(_text(config))
        if subprocess.run([*shlex.split(editor), str(path)], check=False).returncode:
            raise ConfigError(f"--interactive: {editor} has failed; nothing was changed")
        return read_config(path, kind)


def write_config(config: Document, path: Path) -> None:
    """Save a configuration, as --config reads it."""
    path.write_bytes(_text(config))
    note(f"Wrote the configuration to {path}")


def _text(config: Document) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plain(config)), indent=2) + b"\n"
