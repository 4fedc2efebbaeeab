"""Claims on rows that are stored: however many, however small a message may be."""

import random
from pathlib import Path

import pytest

import slipstream.sync
from slipstream.spark.sink.claims import cut, packed, unpacked
from tests.fix_nats_server import start_nats_server
from tests.fix_server_process import StartProcess
from tests.spark.test_exactly_once import killed, rows, run_tasks, sink_of
from tests.spark.test_sink import stream_of


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_places_are_cut_into_parts_that_fit(count: int) -> None:
    places = sorted(random.Random(7).sample(range(10**6), count))
    parts = list(cut(places, 100))
    assert [place for part in parts for place in part] == places
    assert all(len(packed(part)) <= 100 for part in parts)
    assert [unpacked(packed(part)) for part in parts] == parts


@pytest.mark.parametrize("kind", ["slipstream", "nats-server"])
def test_a_server_of_small_messages_lets_many_rows_be_claimed(
    start_server: StartProcess, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "server.conf"
    path.write_text("max_payload: 1500\n")
    flags = "-c", str(path)
    if kind == "slipstream":
        server = start_server("-js", "-sd", str(tmp_path / "store"), *flags)
        url, process = server.url, server.process
    else:
        real = start_nats_server(tmp_path / "nats", *flags)
        url, process = real.url, real.process
    try:
        name = stream_of(url)
        sink = sink_of(url, name)
        values = [str(n) for n in range(12000)]
        killed(sink, "first", *(rows(name, *values[part::2]) for part in range(2)))
        random.Random(7).shuffle(values)
        run_tasks(sink, "second", *(rows(name, *values[part::2]) for part in range(2)))
        with slipstream.sync.connect(url) as nc:
            assert nc.jetstream().stream(name).info().state.messages == 12000
    finally:
        process.kill()
        process.wait()
