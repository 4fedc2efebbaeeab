"""Saved connections, in the files that the `nats` tool uses, so that both share them.

``$XDG_CONFIG_HOME/nats/context/<name>.json`` holds one context,
``$XDG_CONFIG_HOME/nats/context.txt`` the name of the one that is selected. Fields that we do not
know are kept.
"""

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from slipstream.errors import ConfigError

# Field of the file -> option of the command line.
FIELDS = {
    "url": "server",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "cert": "tlscert",
    "key": "tlskey",
    "ca": "tlsca",
    "tls_first": "tlsfirst",
    "jetstream_domain": "js_domain",
    "jetstream_api_prefix": "js_api_prefix",
    "jetstream_event_prefix": "js_event_prefix",
    "inbox_prefix": "inbox_prefix",
    "socks_proxy": "socks_proxy",
}


def config_home() -> Path:
    """Where the `nats` tool keeps its files."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "nats"


def path_of(name: str) -> Path:
    """The file of a context; raises `ConfigError` for a name that cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or ".." in name:
        raise ConfigError(f'"{name}" cannot name a context; use letters, digits, "-", "_" and "."')
    return config_home() / "context" / f"{name}.json"


def names() -> list[str]:
    """All contexts, sorted."""
    return sorted(path.stem for path in (config_home() / "context").glob("*.json"))


def selected() -> str:
    """The selected context; "" for none."""
    path = config_home() / "context.txt"
    return path.read_text().strip() if path.exists() else ""


def select(name: str) -> None:
    """Use `name` from now on; "" for none. Raises `ConfigError` if there is no such context."""
    if name:
        load(name)
    config_home().mkdir(parents=True, exist_ok=True)
    former = selected()
    if former and former != name:
        (config_home() / "previous-context.txt").write_text(former)
    (config_home() / "context.txt").write_text(name)


def previous() -> str:
    """The context that was selected before; "" for none."""
    path = config_home() / "previous-context.txt"
    return path.read_text().strip() if path.exists() else ""


def load(name: str) -> dict[str, Any]:
    """A context's fields; raises `ConfigError` if there is none, or its file is damaged."""
    path = path_of(name)
    if not path.exists():
        raise ConfigError(f'there is no context "{name}"; `slipstream context ls` lists them')
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"the context file {path} cannot be read: {error}") from error
    return found


def save(name: str, fields: dict[str, Any]) -> Path:
    """Write a context, readable by its owner alone; the file."""
    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n")
    return path


def remove(name: str) -> None:
    """Forget a context; raises `ConfigError` if there is none."""
    load(name)
    path_of(name).unlink()
    if selected() == name:
        select("")
