"""What the sink chooses, and what a session is given, is said where people look."""

import json
import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from slipstream.spark.session import _CONFIG, _LOCAL_CONFIG
from slipstream.spark.sink.exactly_once import Task
from tests.fix_server_process import StartProcess
from tests.lasting_ports import lasting_port
from tests.spark.test_exactly_once import rows, sink_of
from tests.spark.test_sink import stream_of

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_what_a_session_is_given_is_in_the_docs() -> None:
    text = PAGE.read_text()
    for name, value in (_CONFIG | _LOCAL_CONFIG).items():
        assert f"`{name}`" in text
        if "redaction" not in name:  # the page says it in words
            assert f"`{value.rpartition('.')[2]}`" in text


def test_a_weak_mode_that_nobody_asked_for_is_a_warning(
    jetstream_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue, lasting = stream_of(jetstream_url, retention="workqueue"), stream_of(jetstream_url)
    caplog.set_level(logging.INFO, "slipstream.spark")
    sink_of(jetstream_url, queue)
    sink_of(jetstream_url, queue, mode="at-least-once")
    sink_of(jetstream_url, lasting)
    said = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "slipstream.spark"
    ]
    assert said == [
        (
            "WARNING",
            f"{queue} is written at-least-once: a batch that is written again is there twice "
            "(option mode)",
        ),
        ("INFO", f"{queue} is written at-least-once"),
        ("INFO", f"{lasting} is written exactly-once"),
    ]


def test_the_servers_monitoring_shows_in_which_mode_a_task_writes(
    start_server: StartProcess, tmp_path: Path
) -> None:
    monitor = lasting_port()
    server = start_server("-js", "-sd", str(tmp_path / "store"), "-m", str(monitor))
    name = stream_of(server.url)
    names: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(name, "a")
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/connz") as answer:
            names.extend(entry["name"] for entry in json.load(answer)["connections"])

    sink_of(server.url, name).run(batches(), Task("q", 0, 0))
    assert "spark-sink exactly-once" in names
