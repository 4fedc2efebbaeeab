"""Rows that nobody listens to for a while are in doubt; dead letters are as many as bad rows."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import slipstream.sync
from slipstream.client.arrow import row_publisher
from slipstream.client.arrow.row_block import RowBlock
from slipstream.spark.sink import retried_rows
from slipstream.spark.sink.retried_rows import RetryingPublisher, UnheardError
from slipstream.spark.sink.writing import Attempt, Task
from tests.spark import test_bucket_sink as buckets
from tests.spark.test_bucket_sink import bucket_of, entries, table_of
from tests.spark.test_exactly_once import (
    KilledError,
    killed_after,
    rows,
    run_tasks,
    sink_of,
    written,
)
from tests.spark.test_sink import messages, stream_of


def listen(url: str, stream: str, *subjects: str) -> None:
    """Change what a stream listens to."""
    with slipstream.sync.connect(url) as nc:
        nc.jetstream().stream(stream).update(subjects=list(subjects))


def wake_after(monkeypatch: pytest.MonkeyPatch, times: int, wake: Any) -> None:
    """Call `wake` when rows have been unheard and are about to be sent again for the nth time."""
    send = RetryingPublisher._send_again
    left = [times]

    async def send_again(self: RetryingPublisher, block: RowBlock) -> None:
        left[0] -= 1
        if left[0] == 0:
            await asyncio.to_thread(wake)
        await send(self, block)

    monkeypatch.setattr(RetryingPublisher, "_send_again", send_again)
    monkeypatch.setattr(retried_rows, "UNHEARD_WAIT_SECONDS", 0.01)


def test_rows_that_nobody_listens_to_for_a_while_are_no_dead_letters(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, dead = stream_of(either_url), stream_of(either_url)
    sink = sink_of(either_url, name, dead_letter_subject=f"{dead}.x")
    wake_after(
        monkeypatch,
        row_publisher.UNHEARD_RETRIES + 2,
        lambda: listen(either_url, name, f"{name}.>"),
    )

    def batches() -> Iterator[pa.RecordBatch]:
        listen(either_url, name, f"off.{name}.>")
        yield rows(name, "a", "b")
        yield rows(name, "c")

    done = sink.run(batches(), Task("q", 0, 0, "run"))
    sink.commit([done])
    assert sorted(written(either_url, name)) == [b"a", b"b", b"c"]
    assert (done.dead, messages(either_url, dead)) == (0, [])


def test_a_connection_that_breaks_after_rows_were_not_heard_loses_no_equal_row(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = stream_of(either_url)
    sink = sink_of(either_url, name)
    lives: list[Any] = []
    begin = Attempt.begin

    async def remembered(self: Attempt, connection: Any, js: Any) -> None:
        lives.append(connection)
        await begin(self, connection, js)

    monkeypatch.setattr(Attempt, "begin", remembered)
    send = RetryingPublisher.send
    sent = 0

    async def send_heard_late(self: RetryingPublisher, block: RowBlock) -> None:
        nonlocal sent
        sent += 1
        if sent == 2:  # the first block was not heard, the second one is
            await self._is_answered(self._acks.blocks[0])
            await asyncio.to_thread(listen, either_url, name, f"{name}.>")
        await send(self, block)

    monkeypatch.setattr(RetryingPublisher, "send", send_heard_late)

    def batches() -> Iterator[pa.RecordBatch]:
        listen(either_url, name, f"off.{name}.>")
        yield rows(name, "a")
        yield rows(name, "c")
        buffer = lives[-1].write_buffer
        buffer.loop.call_soon_threadsafe(buffer.transport.abort)
        yield rows(name, "a")
        yield rows(name, "d")

    sink.commit([sink.run(batches(), Task("q", 0, 0, "run"))])
    assert len(lives) == 2
    assert sorted(written(either_url, name)) == [b"a", b"a", b"c", b"d"]


def test_a_subject_of_the_stream_that_nobody_listens_to_any_more_fails_the_write(
    jetstream_url: str,
) -> None:
    name, dead = stream_of(jetstream_url), stream_of(jetstream_url)
    sink = sink_of(jetstream_url, name, dead_letter_subject=f"{dead}.x", retry_timeout=0.5)
    listen(jetstream_url, name, f"off.{name}.>")
    with pytest.raises(UnheardError, match=rf"nobody has listened on '{name}.x' for 0.5 s"):
        sink.run(iter([rows(name, "a")]), Task("q", 0, 0, "run"))
    assert messages(jetstream_url, dead) == []


def test_the_last_value_of_a_key_wins_when_an_earlier_one_was_not_heard(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = bucket_of(either_url)
    sink = buckets.sink_of(either_url, bucket)
    own = [f"$KV.{bucket}.>"]
    send = RetryingPublisher.send
    sent = 0

    async def send_heard_late(self: RetryingPublisher, block: RowBlock) -> None:
        nonlocal sent
        sent += 1
        if sent == 2:  # the first block was not heard, the second one is
            await self._is_answered(self._acks.blocks[0])
            await asyncio.to_thread(listen, either_url, f"KV_{bucket}", *own)
        await send(self, block)

    monkeypatch.setattr(RetryingPublisher, "send", send_heard_late)

    def batches() -> Iterator[pa.RecordBatch]:
        listen(either_url, f"KV_{bucket}", f"off.{bucket}.>")
        yield entries(price="old", other="1")
        yield entries(price="new")

    sink.commit([sink.run(batches(), Task("q", 0, 0, "run"))])
    assert table_of(either_url, bucket) == {"price": b"new", "other": b"1"}


def test_a_connection_that_breaks_in_between_lets_the_last_value_of_a_key_win_too(
    either_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = bucket_of(either_url)
    sink = buckets.sink_of(either_url, bucket)
    listen(either_url, f"KV_{bucket}", f"off.{bucket}.>")
    send = RetryingPublisher.send
    sent = 0

    async def send_and_break(self: RetryingPublisher, block: RowBlock) -> None:
        nonlocal sent
        sent += 1
        if sent == 2:  # the first block was not heard, the second one is stored
            await self._is_answered(self._acks.blocks[0])
            await asyncio.to_thread(listen, either_url, f"KV_{bucket}", f"$KV.{bucket}.>")
        await send(self, block)
        if sent == 2:
            await self._is_answered(block)
            self._acks.error = ConnectionError("it broke")

    monkeypatch.setattr(RetryingPublisher, "send", send_and_break)
    batches = iter([entries(price="old"), entries(price="new")])
    sink.commit([sink.run(batches, Task("q", 0, 0, "run"))])
    assert table_of(either_url, bucket) == {"price": b"new"}


def test_equal_rows_that_cannot_be_stored_are_a_dead_letter_each(either_url: str) -> None:
    name, dead = stream_of(either_url, max_msg_size=200), stream_of(either_url)
    sink = sink_of(either_url, name, dead_letter_subject=f"{dead}.x")
    large = "x" * 300
    run_tasks(sink, "first", rows(name, "a", large, large), rows(name, large))
    run_tasks(sink, "next", rows(name, large), batch=1)
    assert len(messages(either_url, dead)) == 4


def test_a_dead_letter_is_there_once_when_its_task_is_tried_again(either_url: str) -> None:
    name, dead = stream_of(either_url, max_msg_size=200), stream_of(either_url)
    sink = sink_of(either_url, name, dead_letter_subject=f"{dead}.x")
    large, larger = "x" * 300, "y" * 400
    task = Task("q", 0, 0, "run")
    nothing = rows(name)
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, large), nothing, nothing), task)
    sink.run(iter([rows(name, large)]), task)
    assert len(messages(either_url, dead)) == 1
    task = Task("q", 1, 0, "run")
    with pytest.raises(KilledError):
        sink.run(killed_after(rows(name, large, "a"), nothing, nothing), task)
    sink.run(iter([rows(name, larger, large, "a")]), task)  # in another order: none is lost
    found = {message.data for message in messages(either_url, dead)}
    assert found == {large.encode(), larger.encode()}
