"""What a reload changes (docs/configuration.md#reload): all of it or nothing.

`plan_reload` compares the running options with new ones. Either each difference can be taken over
by a running server, and the plan lists them with the lines to log, or one cannot, and the reload
is refused in nats-server's words, which scripts look for:

    config reload not supported for ServerName: old=, new=new

Which options are live stands with the directives; here are their names in those words.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from slipstream.errors import ConfigError
from slipstream.model.durations import duration_text
from slipstream.server.config.blocks import Block, Directive
from slipstream.server.config.directives import TOP
from slipstream.server.options import ServerOptions

# Options whose parts are compared one by one; any other struct is compared as a whole.
_GROUPS = frozenset(
    {
        "limits",
        "logging",
        "monitoring",
        "console",
        "authorization",
        "jetstream",
        "jetstream.limits",
        "jetstream.limits.batch",
    }
)
_SILENT = frozenset({"config_file", "config_digest"})
_SECRET = frozenset({"authorization.password", "authorization.token", "authorization.user"})
_SIZES = frozenset({"jetstream.max_memory_store", "jetstream.max_file_store"})

_NAMES = {
    "allow_non_tls": "AllowNonTLS",
    "console.enabled": "Console",
    "jetstream.domain": "JetStreamDomain",
    "jetstream.strict": "NoJetStreamStrict",
    "limits.max_subscriptions": "MaxSubs",
    "proxy_protocol": "ProxyProtocol",
    "monitoring.host": "HTTPHost",
    "monitoring.http_base_path": "HTTPBasePath",
    "monitoring.http_port": "HTTPPort",
    "monitoring.https_port": "HTTPSPort",
}
_LABELS = {
    "authorization.password": "authorization password",
    "authorization.token": "authorization token",
    "authorization.user": "authorization username",
    "authorization.timeout": "authorization timeout",
    "authorization.users": "authorization users",
    "authorization.default_permissions": "authorization users",
    "jetstream.enabled": "JetStream",
    "jetstream.max_file_store": "JetStream max_file_store",
    "jetstream.max_memory_store": "JetStream max_mem_store",
    "limits.no_fast_producer_stall": "fast producers stalled",
    "server_metadata": "metadata",
    "server_tags": "tags",
}
_WITHOUT_VALUE = frozenset(
    {"accounts", "authorization.default_permissions", "authorization.users", "jetstream.enabled"}
) | {"mappings", "server_metadata", "server_tags"}
_TIMES = frozenset({"limits.ping_interval", "limits.write_deadline"})
_TIMES |= {"limits.lame_duck_duration", "limits.lame_duck_grace_period", "jetstream.sync_interval"}


@dataclass(slots=True, frozen=True)
class Change:
    """An option that differs between two configurations."""

    option: str  # its path in ServerOptions, such as limits.max_payload
    old: Any
    new: Any
    reloadable: bool

    @property
    def applied(self) -> str:
        """What the log says once it is taken over."""
        label = _LABELS.get(self.option) or self.option.rpartition(".")[2]
        if self.option == "tls":
            return f"Reloaded: tls = {'disabled' if self.new is None else 'enabled'}"
        if self.option.startswith("jetstream.limits."):
            return "Reloaded: JetStream limits"
        if self.option in _WITHOUT_VALUE or self.option in _SECRET:
            return f"Reloaded: {label}"
        return f"Reloaded: {label} = {_shown(self.option, self.new)}"

    @property
    def refused(self) -> str:
        """Why a reload cannot take it over."""
        what = "config reload not supported for"
        if self.option in _SIZES:
            fewer = self.new >= 0 and self.old >= 0
            which = "max memory and store" if fewer else "max memory and max store"
            return f"{what} {'decreasing ' if fewer else ''}jetstream {which}"
        if self.option == "jetstream.store_dir":
            return f"{what} jetstream storage directory"
        name = _NAMES.get(self.option) or _camel_case(self.option.rpartition(".")[2])
        old, new = self.old, self.new
        if self.option == "jetstream.strict":
            old, new = not old, not new
        return f"{what} {name}: old={_shown(self.option, old)}, new={_shown(self.option, new)}"


def plan_reload(old: ServerOptions, new: ServerOptions) -> list[Change]:
    """What to take over. Raises `ConfigError` if the new ones are wrong or need a restart."""
    new.validate()
    found = changes(old, new)
    for change in found:
        if not change.reloadable:
            raise ConfigError(change.refused)
    return found


def changes(old: ServerOptions, new: ServerOptions) -> list[Change]:
    """Every option that is different, in the order of their names."""
    live = dict(_live(TOP))
    switched = old.jetstream.enabled != new.jetstream.enabled
    found = []
    for path, before, after in _differences(old, new, ""):
        if path in _SILENT:
            continue
        if switched and path.startswith("jetstream.") and path != "jetstream.enabled":
            continue  # JetStream goes off with all it was told, or comes on with it
        reloadable = live.get(path, False)
        if path in _SIZES:
            reloadable = 0 <= before <= after
        found.append(Change(path, before, after, reloadable))
    return sorted(found, key=lambda change: change.option)


def _differences(old: Any, new: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        path = prefix + name
        if path in _GROUPS:
            yield from _differences(before, after, f"{path}.")
        elif before != after:
            yield path, before, after


def _live(block: Block, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Paths of options, and whether a running server can take them over."""
    for directive in block.directives:
        path = prefix + (directive.option or directive.name)
        if directive.inner is not None and path in _GROUPS:
            yield from _live(directive.inner, f"{path}.")
        else:
            yield path, directive.reloadable


def is_live(prefix: str, directive: Directive) -> bool:
    """Whether a running server can take a directive over; `prefix` is the path of its block."""
    live = dict(_live(TOP))
    path = prefix + (directive.option or directive.name)
    while path:
        if path in live:
            return live[path]
        path = path.rpartition(".")[0]  # a block that is taken over as a whole
    return directive.reloadable


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _shown(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if path in _TIMES:
        return duration_text(value)
    if path == "authorization.timeout":
        return f"{value / 1e9:g}"
    if isinstance(value, list):
        return "[" + " ".join(str(item) for item in value) + "]"
    return str(value if not isinstance(value, msgspec.Struct) else "{}")
