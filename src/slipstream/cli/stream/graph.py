"""`slipstream stream graph`: what a stream has stored lately, as small graphs that go on."""

from time import perf_counter
from typing import Annotated

import typer

from slipstream.cli.choose import choose_stream
from slipstream.cli.graphs import Count, Graphs, Interval, draw
from slipstream.cli.session import command, jetstream, new_app
from slipstream.cli.values import duration

app = new_app()


@command(app, "graph")
async def graph(
    name: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    interval: Interval = "1s",
    count: Count = 0,
) -> None:
    """Draw what a stream stores, removes and holds, until Ctrl-C."""
    async with jetstream() as js:
        name = await choose_stream(js, name)

        async def look(graphs: Graphs) -> None:
            state = (await js.stream_info(name)).state
            now = perf_counter()
            graphs.add_rate("Stored a second", state.last_seq, now)
            graphs.add_rate("Removed a second", state.last_seq - state.messages, now)
            graphs.add("Messages", state.messages)
            graphs.add("Bytes", state.bytes)

        await draw(f"Stream {name}", look, duration(interval), count)
