"""Writes the tables of docs/configuration.md from the directives themselves; takes no arguments."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipstream.model.durations import duration_text
from slipstream.server.config.blocks import Block, Directive, Support
from slipstream.server.config.directives import TOP
from slipstream.server.config.reload import is_live
from slipstream.server.options import AccountOptions, ServerOptions, TlsOptions

TARGET = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- made by tools/generate_configuration.py -->"
END = "<!-- end -->"

# Structs that hold the defaults of blocks which are absent by default.
_DEFAULTS: dict[str, Any] = {
    "tls": TlsOptions(),
    "accounts": AccountOptions(name=""),
}
_UNITS = ((1024**2, "MB"), (1024, "KB"))


def blocks(block: Block, prefix: str = "") -> Iterator[tuple[str, Block]]:
    """A block and those in it, with their paths; each once."""
    yield prefix, block
    for directive in block.directives:
        if directive.inner is not None:
            yield from blocks(directive.inner, f"{prefix}{directive.name}.")


def tables() -> str:
    """All tables, as Markdown."""
    parts = []
    seen: set[int] = set()
    for prefix, block in blocks(TOP):
        if id(block) in seen:
            continue
        seen.add(id(block))
        title = prefix.rstrip(".").replace(".", " → ") or "Top level"
        parts += [f"### {title}", "", *_rows(prefix, block), ""]
    parts += ["### Accepted, without effect", "", *_list(Support.NO_EFFECT), ""]
    parts += ["### Not supported yet", ""]
    unless = "it is false or empty, or a block in which nothing opens a port or a connection"
    parts += [f"Each is an error with its place, unless {unless}.", ""]
    parts += _list(Support.REFUSED)
    return "\n".join(parts)


def _rows(prefix: str, block: Block) -> Iterator[str]:
    yield "| directive | type | default | reload | meaning |"
    yield "|---|---|---|---|---|"
    for directive in block.directives:
        if directive.support is Support.FULL:
            names = ", ".join(f"`{name}`" for name in (directive.name, *directive.aliases))
            live = "live" if is_live(prefix, directive) else "restart"
            default = _default(prefix, directive)
            meaning = directive.meaning.replace("|", "\\|")
            yield f"| {names} | {directive.kind.name} | {default} | {live} | {meaning} |"


def _list(support: Support) -> Iterator[str]:
    yield "| directive | what it is about |"
    yield "|---|---|"
    seen: set[int] = set()
    for prefix, block in blocks(TOP):
        if id(block) in seen:
            continue
        seen.add(id(block))
        for directive in block.directives:
            if directive.support is support:
                path = f"{prefix}{directive.name}"
                names = ", ".join(f"`{name}`" for name in (path, *directive.aliases))
                yield f"| {names} | {directive.meaning} |"


def _default(prefix: str, directive: Directive) -> str:
    found: Any = ServerOptions()
    path = prefix + (directive.option or directive.name)
    for start, struct in _DEFAULTS.items():
        if path.startswith(f"{start}."):
            found, path = struct, path.removeprefix(f"{start}.")
    for name in path.split("."):
        found = getattr(found, name, None)
    return _shown(found, directive)


def _shown(value: Any, directive: Directive) -> str:
    is_struct = hasattr(value, "__struct_fields__")
    if value is None or value == "" or is_struct or isinstance(value, list | dict):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and ("duration" in directive.kind.name) and value > 0:
        return duration_text(value).replace("m0s", "m")
    if isinstance(value, int) and "size" in directive.kind.name:
        for unit, name in _UNITS:
            if value and value % unit == 0:
                return f"{value // unit}{name}"
    return str(value)


def page(text: str) -> str:
    """The page with its tables made anew."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", text)


def main() -> None:
    """Write the page."""
    TARGET.write_text(page(TARGET.read_text()))


if __name__ == "__main__":
    main()
