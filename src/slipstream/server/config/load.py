"""From a configuration file to `ServerOptions`."""

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.errors import ConfigError
from slipstream.server.config.directives import TOP
from slipstream.server.config.grammar import parse_file, parse_text
from slipstream.server.config.kinds import Notes, Wrong
from slipstream.server.config.tree import Value, digest
from slipstream.server.options import ServerOptions


@dataclass(slots=True)
class Loaded:
    """What a file gave: the options, and warnings (each with file, line and column)."""

    options: ServerOptions
    warnings: list[str]


def load_file(
    path: str,
    environment: Mapping[str, str] | None = None,
    options: ServerOptions | None = None,
) -> Loaded:
    """Read the configuration file at `path` into `options` (new ones by default).

    `environment` is where variables are looked for (the process's by default). Raises `ConfigError`
    with one line for each thing that is wrong: ``file:line:col: what``. Options are not validated
    yet, since flags may still change them; call `ServerOptions.validate` before use.
    """
    return _load(parse_file(path, environment), path, options)


def load_options(path: str, environment: Mapping[str, str] | None = None) -> ServerOptions:
    """The validated options of a file, for who has no flags to add and no use for warnings."""
    options = load_file(path, environment).options
    options.validate()
    return options


def check_file(path: str, environment: Mapping[str, str] | None = None) -> Loaded:
    """What `-t` does: read and validate the file, starting nothing; warnings are errors here.

    Raises `ConfigError` with a line for each thing that is wrong.
    """
    loaded = load_file(path, environment)
    if loaded.warnings:
        raise ConfigError("\n".join(loaded.warnings))
    loaded.options.validate()
    return loaded


def load_text(
    text: str,
    file: str = "config",
    environment: Mapping[str, str] | None = None,
    options: ServerOptions | None = None,
) -> Loaded:
    """Read a configuration from text; `file` is what errors call it."""
    return _load(parse_text(text, file, environment), file, options)


def _load(tree: Value, file: str, options: ServerOptions | None) -> Loaded:
    found = ServerOptions() if options is None else options
    notes = Notes()
    if not tree.data:
        notes.warnings.append(f"{file}: config has no values or is empty")
    try:
        TOP.fill(tree, found, notes)
    except Wrong as error:
        notes.wrong(error.place or tree.place, str(error))
    if notes.errors:
        raise ConfigError("\n".join(notes.errors))
    found.config_file = file
    found.config_digest = digest(tree)
    return Loaded(found, notes.warnings)
