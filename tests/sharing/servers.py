"""A server with two accounts, one of which imports what the other exports; of either kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import slipstream
from tests.leaf.servers import NATS, SLIPSTREAM, Node, running

KINDS = [NATS, SLIPSTREAM]


def accounts(exports: str, imports: str, more: str = "", exporter_more: str = "") -> str:
    """`EXPORTER` exports and `IMPORTER` imports; the users are `e` and `i`, without passwords that
    matter. `more` are further accounts."""
    return f"""
        accounts {{
          EXPORTER {{
            jetstream: enabled
            users: [ {{ user: e, password: p }} ]
            exports: [ {exports} ]
            {exporter_more}
          }}
          IMPORTER {{
            jetstream: enabled
            users: [ {{ user: i, password: p }} ]
            imports: [ {imports} ]
          }}
          {more}
        }}
    """


@asynccontextmanager
async def server(kind: str, directory: Path, text: str) -> AsyncIterator[Node]:
    """A server of that kind, which runs."""
    node = Node(kind, "ONE", directory, "", more=text)
    async with running(node):
        yield node


async def connect(node: Node, user: str, **more: Any) -> slipstream.Connection:
    """A connection of `user`."""
    return await slipstream.connect(node.url, user=user, password="p", **more)
