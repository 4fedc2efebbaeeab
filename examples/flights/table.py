"""The stream FLIGHTS as an Iceberg table, and its sums as DuckDB and Polars read them from there.

The flights are partitioned by the month in which they were scheduled to leave. The tick of the
clock is no flight: only the subjects of flights are written.
"""

import os
from pathlib import Path
from time import perf_counter

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
from examples.flights.data import FLIGHTS_SUBJECT

from slipstream.client.jetstream import JetStream
from slipstream.tables import TableOptions, TableWriter, stream_table
from slipstream.tables.iceberg import open_catalog

OPTIONS = TableOptions(
    columns={"scheduled": "timestamp"},
    time="scheduled",
    partition="month",
    subjects=(FLIGHTS_SUBJECT,),
)
SUMS = ["carrier", "flights", "delay", "distance"]


async def write(js: JetStream, directory: Path) -> float:
    """Write the stream into the table `demo.flights`; rows a second."""
    begun = perf_counter()
    table = stream_table(str(directory), "demo.flights", "FLIGHTS", OPTIONS)
    progress = await TableWriter(js, table).write_all()
    seconds = perf_counter() - begun
    print(f"  {progress.rows:,} rows in {progress.commits} commits, {progress.rejected} rejected")
    return progress.rows / seconds


def computed(flights: pd.DataFrame) -> pd.DataFrame:
    """Flights, minutes of delay and miles of each carrier, from the source."""
    sums = flights.groupby("carrier", as_index=False).agg(
        flights=("flight", "size"), delay=("dep_delay", "sum"), distance=("distance", "sum")
    )
    return ordered(sums)


def in_duckdb(directory: Path) -> pd.DataFrame:
    """The same from the table, by DuckDB."""
    table = open_catalog(str(directory)).load_table("demo.flights")
    rows = table.scan(selected_fields=("carrier", "dep_delay", "distance")).to_arrow()
    connection = duckdb.connect()
    connection.register("flights", rows)
    query = "SELECT carrier, count(*), sum(dep_delay), sum(distance) FROM flights GROUP BY carrier"
    return ordered(pd.DataFrame(connection.execute(query).fetchall(), columns=SUMS))


def in_polars(directory: Path) -> pd.DataFrame:
    """The same from the table, by Polars."""
    os.environ.setdefault("POLARS_ICEBERG_PLANNER", "pyiceberg")  # or it recommends another one
    table = open_catalog(str(directory)).load_table("demo.flights")
    grouped = pl.scan_iceberg(table).group_by("carrier")
    sums = grouped.agg(
        pl.len().alias("flights"), pl.sum("dep_delay").alias("delay"), pl.sum("distance")
    )
    found: pa.Table = sums.collect().to_arrow()
    return ordered(found.to_pandas())


def ordered(sums: pd.DataFrame) -> pd.DataFrame:
    """The columns in one order and of one type, the rows by carrier."""
    types = {"carrier": "object", "flights": "int64", "delay": "float64", "distance": "float64"}
    return sums[SUMS].astype(types).sort_values("carrier", ignore_index=True)
