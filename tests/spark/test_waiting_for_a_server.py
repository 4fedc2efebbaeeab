"""A server that is away when a query starts is waited for; without one, errors say so."""

import socket
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import slipstream.sync
from slipstream.client.errors import TimeoutError
from slipstream.client.jetstream.errors import JetStreamNotEnabledError
from slipstream.spark.connections import connect
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.source.batch import BatchReader
from slipstream.spark.source.ranges import Part
from slipstream.spark.source.streaming import StreamReader
from tests.fix_server_process import StartProcess
from tests.lasting_ports import lasting_port

SCHEMA = StructType([StructField("sequence", LongType())])


async def test_a_task_that_waits_in_vain_says_for_what_and_hides_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        given = {"servers": url, "retryTimeout": "0.2", "user": "ada", "password": "tr0ub4dor"}
        options = parse(SourceOptions, given)
        with pytest.raises(TimeoutError, match=r"no server has answered.*retryTimeout") as caught:
            await connect(options, "test", patient=True)
    assert url in str(caught.value)
    assert "tr0ub4dor" not in str(caught.value)


@pytest.mark.parametrize("kind", ["batch", "streaming"])
def test_a_query_waits_for_a_server_that_is_away_when_it_starts(
    start_server: StartProcess, tmp_path: Path, kind: str
) -> None:
    port = lasting_port()
    flags = ("-js", "-sd", f"{tmp_path}/store", "-p", str(port))
    first = start_server(*flags)
    with slipstream.sync.connect(first.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="LATE", subjects=["late"], allow_direct=True)
        js.publish("late", b"one")
    first.kill()
    options = parse(SourceOptions, {"servers": first.url, "stream": "LATE"})
    found: list[object] = []

    def begin() -> None:
        if kind == "batch":
            found.extend(BatchReader(SCHEMA, options).partitions())
            return
        reader = StreamReader(SCHEMA, options)
        found.append(reader.initialOffset())
        reader.stop()

    with socket.create_server(("127.0.0.1", port)) as nobody:
        query = threading.Thread(target=begin)
        query.start()
        nobody.accept()[0].close()  # it has tried, and there is no server
    start_server(*flags)
    query.join(120)
    (what,) = found
    if isinstance(what, Part):
        assert (what.start, what.end) == (1, 2)
    else:
        assert isinstance(what, dict)
        assert what["LATE"]["next"] == 2


def test_a_query_without_a_server_fails_when_it_has_waited_long_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"nats://127.0.0.1:{taken.getsockname()[1]}"
        options = parse(SourceOptions, {"servers": url, "stream": "S", "retryTimeout": "0.2"})
        with pytest.raises(TimeoutError, match=r"no server has answered for 0.2 s"):
            BatchReader(SCHEMA, options).partitions()


def test_a_server_without_jetstream_is_not_waited_for(start_server: StartProcess) -> None:
    server = start_server()
    options = parse(SourceOptions, {"servers": server.url, "stream": "S"})
    with pytest.raises(JetStreamNotEnabledError):
        BatchReader(SCHEMA, options).partitions()
