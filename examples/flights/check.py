"""Act three: the same results from pandas, and whether stream, Parquet and bucket equal them.

Equal means equal: the same rows, once each, and every value to the last bit. Sums of whole minutes
are exact in floating point, so that the order in which anybody has added them does not matter.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pandas as pd

from slipstream.client.jetstream import JetStream

COLUMNS = ["origin", "start", "hour", "flights", "departed", "delay", "worst"]
COLUMNS += ["wind_speed", "visib"]


def computed(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """Delay by origin and hour beside the weather, without a stream and without Spark."""
    keys = ["origin", "time_hour"]
    joined = flights.merge(weather[[*keys, "wind_speed", "visib"]], on=keys, how="left")
    hours = joined.groupby([*keys, "hour"], as_index=False).agg(
        flights=("flight", "size"),
        departed=("dep_delay", "count"),
        delay=("dep_delay", "mean"),
        worst=("dep_delay", "max"),
        wind_speed=("wind_speed", "first"),
        visib=("visib", "first"),
    )
    return ordered(hours.rename(columns={"time_hour": "start"}))


async def in_stream(js: JetStream) -> pd.DataFrame:
    """The rows of the stream DELAYS."""
    stream = await js.stream("DELAYS")
    bodies: list[bytes] = []
    async for batch in stream.scan(subjects="delays.>", columns=["data"]):
        bodies += batch.column("data").to_pylist()
    return parsed(bodies)


async def in_bucket(js: JetStream) -> pd.DataFrame:
    """The rows of the bucket CURRENT whose keys are theirs (``JFK.17``)."""
    bucket = await js.key_value("CURRENT")
    found = {key: (await bucket.get(key)).value for key in await bucket.keys()}
    rows = parsed(found.values())
    return rows[(rows["origin"] + "." + rows["hour"].astype(str)).isin(found)]


def in_parquet(directory: Path) -> pd.DataFrame:
    """The rows of the Parquet files that Spark's log names.

    A query that is killed after it wrote the files of a micro-batch, and before it named them in
    the log, writes them again under other names: what the log does not name is not part of the
    table.
    """
    log = (file for file in (directory / "_spark_metadata").iterdir() if file.name[0].isdigit())
    lines = (line for file in log for line in file.read_text().splitlines())
    named = {url2pathname(urlsplit(json.loads(s)["path"]).path) for s in lines if s[0] == "{"}
    return ordered(pd.concat([pd.read_parquet(path) for path in sorted(named)]))


def parsed(bodies: Iterable[bytes]) -> pd.DataFrame:
    """Rows from JSON."""
    return ordered(pd.DataFrame([json.loads(body) for body in bodies], columns=COLUMNS))


def ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns in one order and of one type, the rows by origin and hour."""
    rows = rows[COLUMNS].assign(start=pd.to_datetime(rows["start"], utc=True).astype("M8[us, UTC]"))
    numbers = dict.fromkeys(COLUMNS[5:], "float64")
    rows = rows.astype({"hour": "int64", "flights": "int64", "departed": "int64", **numbers})
    return rows.sort_values(["origin", "start"], ignore_index=True)


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """The last row of each airport and hour of the day."""
    last = rows.sort_values("start").groupby(["origin", "hour"]).tail(1)
    return last.sort_values(["origin", "start"], ignore_index=True)


def compare(label: str, found: pd.DataFrame, wanted: pd.DataFrame) -> bool:
    """Print whether the rows are the same; where they are not, the first that differ."""
    found = found.reset_index(drop=True)
    same = found.equals(wanted)
    print(f"  {label:<34} {len(found):>7,} rows   {'equal' if same else 'DIFFERENT'}", flush=True)
    if not same:
        both = found.merge(wanted, how="outer", indicator=True)
        print(both[both["_merge"] != "both"].head(6).to_string(index=False))
    return same
