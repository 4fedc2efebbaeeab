"""Message traces over imports: what is noted, and where a trace goes on in the other account."""

import json
from pathlib import Path
from typing import Any

import pytest

import slipstream
from tests.sharing.servers import KINDS, accounts, connect, server

pytestmark = pytest.mark.parametrize("kind", KINDS)

ACCOUNTS = accounts(
    exports="""
        { stream: "open.>" }, { stream: "shut.>" },
        { service: "asked", allow_trace: true }, { service: "quiet" }
    """,
    imports="""
        { stream: { account: EXPORTER, subject: "open.>" }, prefix: "e", allow_trace: true }
        { stream: { account: EXPORTER, subject: "shut.>" }, prefix: "e" }
        { service: { account: EXPORTER, subject: "asked" }, to: "my.asked" }
        { service: { account: EXPORTER, subject: "quiet" }, to: "my.quiet" }
    """,
)


async def events_of(
    connection: slipstream.Connection, subject: str, **headers: str
) -> list[dict[str, Any]]:
    """What the trace of a message says, without times and ids."""
    traces = await connection.subscribe("traces")
    fields = {"Nats-Trace-Dest": "traces"} | {k.replace("_", "-"): v for k, v in headers.items()}
    await connection.publish(subject, b"x", headers=fields)
    found = json.loads((await traces.next(timeout=10)).data)["events"]
    await traces.unsubscribe()
    return [{k: v for k, v in event.items() if k not in ("ts", "cid")} for event in found]


async def test_a_stream_import_is_noted(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e", name="owner") as owner,
        await connect(node, "i", name="other") as other,
    ):
        listening = await other.subscribe("e.>")
        await other.flush()
        came_in = {"type": "in", "kind": 0, "name": "owner", "acc": "EXPORTER"}
        assert await events_of(owner, "open.a") == [
            {**came_in, "subj": "open.a"},
            {"type": "se", "acc": "IMPORTER", "to": "e.open.a"},
            {"type": "eg", "kind": 0, "name": "other", "acc": "IMPORTER", "sub": "open.>"},
        ]
        assert await events_of(owner, "shut.a") == [
            {**came_in, "subj": "shut.a"},
            {"type": "se", "acc": "IMPORTER", "to": "e.shut.a"},
        ]
        for subject in ("e.open.a", "e.shut.a"):
            assert (await listening.next(timeout=10)).subject == subject


async def test_a_service_import_is_noted(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e", name="owner") as owner,
        await connect(node, "i", name="other") as other,
    ):
        asked = await owner.subscribe("asked")
        quiet = await owner.subscribe("quiet")
        await owner.flush()
        came_in = {"type": "in", "kind": 0, "name": "other", "acc": "IMPORTER"}
        through = [
            {**came_in, "subj": "my.asked"},
            {"type": "si", "acc": "EXPORTER", "from": "my.asked", "to": "asked"},
            {"type": "eg", "kind": 0, "name": "owner", "acc": "EXPORTER", "sub": "asked"},
        ]
        assert await events_of(other, "my.asked") == through
        assert (await asked.next(timeout=10)).data == b"x"
        assert await events_of(other, "my.quiet") == [
            {**came_in, "subj": "my.quiet"},
            {"type": "si", "acc": "EXPORTER", "from": "my.quiet", "to": "quiet"},
        ]
        assert (await quiet.next(timeout=10)).data == b"x"
        assert await events_of(other, "my.asked", Nats_Trace_Only="true") == through
        await owner.publish("asked", b"own")
        assert (await asked.next(timeout=10)).data == b"own"
