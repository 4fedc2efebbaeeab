"""A scan gives every message of a range once, in order, whatever happens on the way."""

import asyncio
import contextlib
import struct
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow
import pytest

import slipstream
from slipstream.client.arrow.scan import Scan
from slipstream.client.jetstream import JetStream, Stream
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.extras import MissingPackageError
from slipstream.model.times import Timestamp
from slipstream.wire.nuid import DIGITS
from tests.client.jetstream.test_consume import until
from tests.client.jetstream.test_malformed import STREAM
from tests.client.proxy import Proxy
from tests.client.scripted_server import Asked, ScriptedServer

WAYS = ["direct", "consumer"]


@pytest.fixture
def js(nc: slipstream.Connection) -> JetStream:
    context: JetStream = nc.jetstream()
    return context


@pytest.fixture(params=WAYS)
async def stream(
    nc: slipstream.Connection, js: JetStream, request: pytest.FixtureRequest
) -> AsyncIterator[Stream]:
    """A stream of a name of its own, with direct gets or without."""
    name = "scan_" + "".join(c for c in nc.new_inbox().rpartition(".")[2] if c in DIGITS)
    made = await js.create_stream(
        name=name, subjects=[f"{name}.>"], allow_direct=request.param == "direct"
    )
    yield made
    await js.delete_stream(name)


async def fill(js: JetStream, stream: Stream, count: int, size: int = 0) -> None:
    """`count` messages on three subjects, the number in the body."""
    for i in range(1, count + 1):
        body = str(i).encode().ljust(size, b".")
        await js.publish_async(f"{stream.name}.{i % 3}", body, headers={"N": str(i)})
    await js.publish_async_complete()


async def sequences(scan: Scan) -> list[int]:
    """What a scan gives."""
    found: list[int] = []
    async for batch in scan:
        assert batch.num_rows
        found += batch["sequence"].to_pylist()
    return found


async def test_every_message_comes_with_all_that_is_known_of_it(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 10)
    table = await stream.scan().to_table()
    table.validate(full=True)
    assert table["sequence"].to_pylist() == list(range(1, 11))
    assert table["subject"].to_pylist() == [f"{stream.name}.{i % 3}" for i in range(1, 11)]
    assert table["data"].to_pylist() == [str(i).encode() for i in range(1, 11)]
    assert table["headers"].to_pylist() == [[("N", [str(i)])] for i in range(1, 11)]
    third = await stream.get_message(3)
    assert third.time is not None
    assert table["timestamp"][2].value == third.time.ns
    frame = table.to_pandas()
    assert list(frame["sequence"]) == list(range(1, 11))


async def test_a_stretch_is_a_frame_in_one_call(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    frame = await stream.scan(2, 5).to_pandas()
    assert list(frame["sequence"]) == [2, 3, 4, 5]
    assert list(frame["data"]) == [b"2", b"3", b"4", b"5"]
    frames = await stream.scan(columns=["sequence", "timestamp", "size"]).to_polars()
    assert frames.shape == (10, 3)
    assert frames["size"].to_list() == [1] * 9 + [2]
    assert (await stream.scan(11).to_polars()).shape == (0, 5)


async def test_a_package_that_is_missing_is_named(
    js: JetStream, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingPackageError, match="pip install polars"):
        await stream.scan().to_polars()


async def test_a_range_has_both_its_ends(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 10)
    assert await sequences(stream.scan(4, 7)) == [4, 5, 6, 7]
    assert await sequences(stream.scan(9)) == [9, 10]
    assert await sequences(stream.scan(0, 100)) == list(range(1, 11))
    assert await sequences(stream.scan(11)) == []
    assert await sequences(stream.scan(7, 6)) == []


async def test_times_bound_a_range_too(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 3)
    await fill(js, stream, 3)
    times = [(await stream.get_message(i)).time for i in (1, 4)]
    assert times[0] is not None
    assert times[1] is not None
    assert await sequences(stream.scan(times[1])) == [4, 5, 6]
    assert await sequences(stream.scan(end=times[1])) == [1, 2, 3]
    assert await sequences(stream.scan(times[0], times[1])) == [1, 2, 3]
    late = Timestamp.from_ns(times[1].ns) + timedelta(days=1)
    assert await sequences(stream.scan(late)) == []


async def test_subjects_are_filtered_by_the_server(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 9)
    assert await sequences(stream.scan(subjects=f"{stream.name}.1")) == [1, 4, 7]
    both = [f"{stream.name}.1", f"{stream.name}.2"]
    assert await sequences(stream.scan(2, 8, subjects=both)) == [2, 4, 5, 7, 8]
    assert await sequences(stream.scan(subjects=f"{stream.name}.none")) == []


async def test_many_small_batches_are_as_good_as_one(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 500, size=100)
    assert await sequences(stream.scan(batch_rows=7)) == list(range(1, 501))
    assert await sequences(stream.scan(batch_bytes=1000)) == list(range(1, 501))
    assert await sequences(stream.scan(batch_bytes=1)) == list(range(1, 501))


async def test_batches_that_end_exactly_at_their_bound_are_no_stop(
    js: JetStream, stream: Stream
) -> None:
    """A pull request that its last message fills to the byte ends without a word."""
    await fill(js, stream, 64, size=100)
    async with asyncio.timeout(4):
        for size in range(170, 200):
            assert len(await sequences(stream.scan(1, 12, batch_bytes=size * 4))) == 12


async def test_holes_and_a_deleted_tail_are_no_loss(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 12)
    for sequence in (1, 4, 5, 11, 12):
        await stream.delete_message(sequence)
    assert await sequences(stream.scan()) == [2, 3, 6, 7, 8, 9, 10]
    assert await sequences(stream.scan(batch_rows=2)) == [2, 3, 6, 7, 8, 9, 10]
    await stream.purge()
    assert await sequences(stream.scan()) == []


async def test_what_is_deleted_under_the_reader_is_a_hole(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    scan = stream.scan(batch_rows=10)
    first = await anext(scan)
    await stream.purge(sequence=60)
    rest = await sequences(scan)
    assert first["sequence"].to_pylist() == list(range(1, 11))
    assert rest == sorted(set(rest))
    assert rest[-41:] == list(range(60, 101))


async def test_only_the_wanted_columns_come(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 2, size=50)
    table = await stream.scan(columns=["size", "sequence"]).to_table()
    assert table.to_pylist() == [{"size": 50, "sequence": 1}, {"size": 50, "sequence": 2}]
    with pytest.raises(ValueError, match="no column 'key'"):
        stream.scan(columns=["key"])


async def test_an_empty_stream_has_no_batches_but_a_schema(stream: Stream) -> None:
    scan = stream.scan()
    assert await sequences(scan) == []
    table = await stream.scan().to_table()
    assert table.schema == scan.schema
    assert table.num_rows == 0
    assert isinstance(table, pyarrow.Table)


async def test_a_stream_that_is_gone_is_an_error(js: JetStream) -> None:
    with pytest.raises(StreamNotFoundError):
        await anext(Scan(js, "none"))


async def test_a_scan_left_early_leaves_nothing_behind(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 100)
    routes = len(js.connection.subscriptions.routes)
    async with stream.scan(batch_rows=10) as scan:
        assert (await anext(scan)).num_rows == 10
    assert len(js.connection.subscriptions.routes) == routes
    with pytest.raises(StopAsyncIteration):
        await anext(scan)
    await until(lambda: _without_consumers(js, stream))


async def _without_consumers(js: JetStream, stream: Stream) -> bool:
    return not (await js.stream_info(stream.name)).state.consumer_count


async def test_a_scan_that_is_cancelled_or_dropped_awaits_nothing_more(
    js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 100)
    routes = len(js.connection.subscriptions.routes)
    for turns in range(0, 30, 3):
        task = asyncio.ensure_future(stream.scan(batch_rows=10).to_table())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    async for batch in stream.scan(batch_rows=10):
        assert batch.num_rows == 10
        break
    await until(lambda: _listens_no_more(js, routes))


async def _listens_no_more(js: JetStream, routes: int) -> bool:
    return len(js.connection.subscriptions.routes) == routes


async def test_a_scan_goes_on_after_the_connection_broke(
    server_url: str, js: JetStream, stream: Stream
) -> None:
    await fill(js, stream, 300, size=500)
    found: list[int] = []
    async with (
        Proxy(server_url) as proxy,
        await slipstream.connect(proxy.url, reconnect_wait=0.01) as far,
    ):
        async for batch in (await far.jetstream().stream(stream.name)).scan(batch_rows=20):
            found += batch["sequence"].to_pylist()
            if len(found) in (60, 200):
                proxy.cut()
    assert found == list(range(1, 301))


async def test_a_message_lost_on_the_way_is_read_again(js: JetStream, stream: Stream) -> None:
    await fill(js, stream, 30)
    scan = stream.scan(batch_rows=10)
    await anext(scan)
    reader: Any = scan._reader
    assert reader is not None
    reader.sink.columns.expected = 99  # as if one had been taken that never came
    assert await sequences(scan) == list(range(11, 31))
    assert not getattr(reader, "_packs", False)  # a server on the way may take no answers so large


@pytest.mark.parametrize("is_packed", [False, True])
async def test_what_a_server_sends_once_more_is_not_given_again(is_packed: bool) -> None:
    batches = [[1, 2], [1, 2, 3], [3, 4, 3], [5]]

    def answer(asked: Asked) -> bytes:
        if ".STREAM.INFO." in asked.subject:
            return asked.answer(msgspec.json.encode(STREAM))
        numbers = batches.pop(0)
        rows = [
            (struct.pack("<QqIIH", number, 1, 0, 0, 0), f"Nats-Sequence: {number}\r\n")
            for number in numbers
        ]
        tails = [f"Nats-Num-Pending: 3\r\nNats-Last-Sequence: {n}\r\n\r\n" for n in (0, *numbers)]
        if is_packed:
            head = f"NATS/1.0\r\nSlipstream-Packed: 1\r\n{tails[0]}".encode()
            sent = asked.answer(b"".join(row for row, _ in rows), head)
        else:
            head = "NATS/1.0\r\nNats-Subject: s\r\nNats-Time-Stamp: 2026-03-01T12:00:00Z\r\n"
            sent = b"".join(
                asked.answer(b"", f"{head}{name}{tail}".encode())
                for (_, name), tail in zip(rows, tails, strict=False)
            )
        return sent + asked.answer(b"", f"NATS/1.0 204 EOB\r\n{tails[-1]}".encode())

    async with ScriptedServer(answer) as server, await slipstream.connect(server.url) as nc:
        assert await sequences(Scan(nc.jetstream(), "S")) == [1, 2, 3, 4, 5]
    assert not batches
