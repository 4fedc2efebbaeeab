"""`slipstream consumer graph`: what a consumer has done lately, as small graphs that go on."""

from time import perf_counter
from typing import Annotated

import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.graphs import Count, Graphs, Interval, draw
from slipstream.cli.session import command, jetstream, new_app
from slipstream.cli.values import duration

app = new_app()


@command(app, "graph")
async def graph(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    name: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")] = "",
    interval: Interval = "1s",
    count: Count = 0,
) -> None:
    """Draw a consumer's rates and what waits, until Ctrl-C."""
    async with jetstream() as js:
        stream, name = await choose_consumer(js, stream, name)

        async def look(graphs: Graphs) -> None:
            info = await js.consumer_info(stream, name)
            now = perf_counter()
            graphs.add_rate("Delivered a second", info.delivered.consumer_seq, now)
            graphs.add_rate("Acknowledged a second", info.ack_floor.consumer_seq, now)
            graphs.add("Outstanding acks", info.num_ack_pending)
            graphs.add("Unprocessed", info.num_pending)

        await draw(f"Consumer {stream} > {name}", look, duration(interval), count)
