"""Which streams copy which, as a graph that GraphViz draws."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from slipstream.client.jetstream import StreamInfo


def write_graph(infos: Sequence[StreamInfo], path: Path) -> None:
    """Save mirrors and sources in the language of `dot`: from the origin to the copy."""
    path.write_text("\n".join(["digraph streams {", *_lines(infos), "}"]) + "\n")


def _lines(infos: Sequence[StreamInfo]) -> Iterator[str]:
    for info in infos:
        yield f"  {json.dumps(info.name)};"
        mirror = [info.config.mirror] if info.config.mirror is not None else []
        for kind, origins in (("mirror", mirror), ("source", info.config.sources)):
            for origin in origins:
                ends = f"{json.dumps(origin.name)} -> {json.dumps(info.name)}"
                yield f"  {ends} [label={json.dumps(kind)}];"
