"""The story of the edge server is told as it is written."""

import asyncio
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "edge_server.py"


async def test_the_edge_loses_and_finds_its_hub() -> None:
    told = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(told.communicate(), 120)
    assert out.decode().splitlines() == [
        "the hub has 100 readings",
        "the hub is away; the edge has stored 250 readings",
        "the hub is back, and has 300",
    ], errors.decode()
