"""The acts in their order: ``python -m examples.flights [--days N] [--directory D]``.

What it makes stays in the directory (build/demo): the server's store, Parquet files, the picture,
Spark's log. A run begins by removing what the last one left there.
"""

import argparse
import asyncio
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from examples.flights import ready

if TYPE_CHECKING:
    import pandas as pd
    from examples.flights.process import Queries

    from slipstream.client import Connection

MICRO_BATCHES = 10
PICTURE = "delay_by_hour.png"


async def main(days: int, directory: Path) -> int:
    """Run the demo; the exit code."""
    from examples.flights import check, data, replay, table
    from examples.flights.screen import title

    import slipstream

    begun = perf_counter()
    clear(directory)
    print("reading the flights of 2013 ...", flush=True)
    flights, weather = data.flights_table(days), data.weather_table()
    told = data.events(flights)
    with slipstream.Server(store_dir=str(directory / "store")) as server:
        print(f"slipstream {slipstream.__version__} listens on {server.url}", flush=True)
        async with slipstream.connect(server.url) as nc:
            title(1, f"{len(flights):,} flights, and a tick of the clock, through a stream")
            agree, rates = await replay.replay(nc, flights, told)

            title(2, "delay by origin and hour beside the weather, on Spark, killed in the middle")
            js = nc.jetstream(max_ack_pending=replay.IN_FLIGHT)
            await replay.load_weather(js, data.weather_entries(weather))
            wanted = check.computed(flights, weather)
            queries = await run_queries(nc, server.url, directory, len(told), wanted)

            title(3, "the same from pandas, compared to the row and the last bit")
            agree &= await compare(nc, directory, wanted)
            show(directory)

            title(4, "the stream as an Iceberg table, read by DuckDB and Polars")
            rates["stream to Iceberg table"] = await table.write(js, directory / "tables")
            agree &= await asyncio.to_thread(compare_table, directory / "tables", flights)

            title(5, "rates, lag, and where to look next")
            report(rates, queries)
            await replay.describe(await js.stream("FLIGHTS"))
    look_next(directory)
    print(f"\n{'everything agrees' if agree else 'SOMETHING DIFFERS'}", end="")
    print(f", after {perf_counter() - begun:.0f} s")
    return 0 if agree else 1


def clear(directory: Path) -> None:
    """Remove what the last run has left."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("store", "servers", "checkpoints", "results", "spark", "tables"):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in ("spark.log", PICTURE):
        (directory / name).unlink(missing_ok=True)


async def run_queries(
    nc: "Connection", url: str, directory: Path, total: int, wanted: "pd.DataFrame"
) -> "Queries":
    """Run the queries, kill them when half of the hours are written, and run them to the end."""
    from examples.flights.process import Queries

    js = nc.jetstream()
    stream = await js.create_stream(name="DELAYS", subjects=["delays.*.*"], allow_direct=True)
    await js.create_key_value("CURRENT")
    queries = Queries(url, directory, total, -(-total // MICRO_BATCHES))
    await queries.run_until_killed(nc, wanted["start"].sort_values().iloc[len(wanted) // 2])
    begun, done = queries.batches()
    stored = sum((await stream.info(subjects_filter="delays.>")).state.subjects.values())
    print(
        f"  ✗ SIGKILL while batch {begun} was being written: {stored:,} rows are in the stream,\n"
        f"    and Spark knows of batches up to {done}. Once more, from the checkpoint:",
        flush=True,
    )
    await queries.run()
    return queries


async def compare(nc: "Connection", directory: Path, wanted: "pd.DataFrame") -> bool:
    """Whether stream, Parquet and bucket have what pandas has computed."""
    from examples.flights import check

    js = nc.jetstream()
    print(f"  {'pandas':<34} {len(wanted):>7,} rows")
    agree = check.compare("stream DELAYS (exactly once)", await check.in_stream(js), wanted)
    agree &= check.compare("Parquet", check.in_parquet(directory / "results"), wanted)
    last = check.newest(wanted)
    return (
        check.compare("bucket CURRENT (the last of each)", await check.in_bucket(js), last) & agree
    )


def compare_table(directory: Path, flights: "pd.DataFrame") -> bool:
    """Whether DuckDB and Polars find the sums of pandas in the table."""
    from examples.flights import check, table

    wanted = table.computed(flights)
    print(f"  {'pandas, sums by carrier':<34} {len(wanted):>7,} rows")
    agree = check.compare("Iceberg table by DuckDB", table.in_duckdb(directory), wanted)
    return check.compare("Iceberg table by Polars", table.in_polars(directory), wanted) & agree


def show(directory: Path) -> None:
    """The table, and the picture, from the Parquet files."""
    from examples.flights import check, plot

    means = plot.by_wind(check.in_parquet(directory / "results"))
    print(f"\n{plot.table(means)}\n")
    plot.picture(means, directory / PICTURE)
    print(f"  the picture: {directory / PICTURE}")


def report(rates: dict[str, float], queries: "Queries") -> None:
    """How fast each step was, and what waits behind each query."""
    from examples.flights.process import backlog

    for step, rate in rates.items():
        print(f"  {step:<34} {rate:>9,.0f}/s")
    for name in ("delays", "table", "current"):
        rate = queries.rows[name] / queries.busy_seconds[name]
        found = backlog(queries.last[name])
        lag = "unknown" if found is None else f"{found:,}"
        print(
            f"  {'query ' + name:<34} {rate:>9,.0f}/s   {queries.rows[name]:>8,} rows   lag {lag}"
        )
    print(f"  too late for the watermark: {queries.dropped} flights")


def look_next(directory: Path) -> None:
    """Commands for what is left in the directory."""
    command = Path(sys.prefix) / "bin" / "slipstream"
    if command.is_relative_to(Path.cwd()):
        command = command.relative_to(Path.cwd())
    print(
        f"\n  the server's store is kept; look at it:\n"
        f"    {command} serve -sd {directory / 'store'} &\n"
        f"    {command} stream ls\n"
        f"    {command} why FLIGHTS kennedy\n"
        f"    {command} kv get CURRENT JFK.17\n"
        f"  examples/flights/queries.py has the queries, docs/spark.md says why"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="examples.flights", description=__doc__)
    parser.add_argument("--days", type=int, default=365, help="of the year, from its first")
    parser.add_argument("--directory", type=Path, default=Path("build/demo"))
    given = parser.parse_args()
    ready.check()
    sys.exit(asyncio.run(main(given.days, given.directory)))
