"""What `slipstream pipeline init` writes: a project that runs as it is written.

Orders come from a stream, become a table, and the large ones go to a stream of their own.
"""

import json
from pathlib import Path

from slipstream.errors import ConfigError

STATE = ".slipstream"  # within a project: what runs leave behind

SPEC = """\
# A pipeline of Spark (pyspark.pipelines); `slipstream pipeline run` runs it.
name: {name}
# Checkpoints: what each flow has read. An absolute URI; on a cluster one that all of it reaches.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
# Anything of Spark's own:
# configuration:
#   spark.sql.shuffle.partitions: "4"
"""

CODE = '''\
"""Orders come from a stream, become a table, and the large ones go to a stream of their own."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from slipstream.spark.pipelines import jetstream_sink, jetstream_source

ORDER = "id BIGINT, customer STRING, amount DOUBLE"


@dp.table
def orders() -> DataFrame:
    """A row for each order, with its place in the stream."""
    order = F.from_json(F.col("data").cast("string"), ORDER).alias("order")
    return jetstream_source("ORDERS").select("sequence", "timestamp", "subject", order).select(
        "sequence", "timestamp", "subject", "order.*"
    )


@jetstream_sink("LARGE_ORDERS")
def large_orders() -> DataFrame:
    """A message for each order of 100 or more: a row needs a subject and data."""
    rows = SparkSession.active().readStream.table("orders").where("amount >= 100")
    return rows.select(
        F.concat(F.lit("large."), "customer").alias("subject"),
        F.to_json(F.struct("id", "amount", "sequence")).alias("data"),
    )
'''

README = """\
# {name}

`transformations/orders.py` reads the stream ORDERS into the table `orders`, and writes the large
ones to the stream LARGE_ORDERS, exactly once.

    slipstream pipeline dry-run     # is it right? nothing is read or written
    slipstream pipeline run         # read what is there, then end
    slipstream pipeline status      # what was read, what waits

Without a server these start one of their own, which keeps its streams in `.slipstream/store`. It
makes the streams of `streams/*.json`, and publishes `streams/messages.jsonl` once, into the new
store. To publish more, run that server yourself, and name it:

    slipstream serve --store_dir .slipstream/store
    slipstream pub --jetstream orders.eu '{{"id": 7, "customer": "ada", "amount": 512}}'
    slipstream pipeline run --server nats://127.0.0.1:4222
    slipstream stream view LARGE_ORDERS --server nats://127.0.0.1:4222

Elsewhere the streams are made by hand, and Spark runs where you say:

    slipstream stream add --config streams/ORDERS.json --server nats://nats.example:4222
    slipstream pipeline run --server nats://nats.example:4222 --remote sc://spark.example:15002

To begin anew: `rm -r .slipstream`.
"""

STREAMS = {"ORDERS": ["orders.>"], "LARGE_ORDERS": ["large.>"]}
_ORDERS = (
    ("eu", 1, "ada", 25.0),
    ("eu", 2, "grace", 140.0),
    ("us", 3, "ada", 99.5),
    ("us", 4, "edsger", 310.0),
    ("eu", 5, "barbara", 12.25),
    ("us", 6, "grace", 100.0),
)


def write_project(folder: Path) -> list[Path]:
    """Write a project into a folder that is not there yet; its files.

    Raises `ConfigError` for a folder that is there.
    """
    if folder.exists():
        raise ConfigError(f"pipeline init: {folder} is there already; choose another name")
    folder = folder.absolute()
    storage = (folder / STATE / "storage").as_uri()
    files = {
        "spark-pipeline.yml": SPEC.format(name=json.dumps(folder.name), storage=storage),
        "transformations/orders.py": CODE,
        "streams/messages.jsonl": "".join(_messages()),
        "README.md": README.format(name=folder.name),
        ".gitignore": f"{STATE}/\n__pycache__/\n",
    }
    for stream, subjects in STREAMS.items():
        config = {"name": stream, "subjects": subjects, "storage": "file", "allow_direct": True}
        files[f"streams/{stream}.json"] = json.dumps(config, indent=2) + "\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return [folder / name for name in files]


def _messages() -> list[str]:
    lines = []
    for region, number, customer, amount in _ORDERS:
        data = {"id": number, "customer": customer, "amount": amount}
        lines.append(json.dumps({"subject": f"orders.{region}", "data": data}) + "\n")
    return lines
