"""`slipstream check --repair` writes a store that is whole, with all that can be read."""

import time
from pathlib import Path

import nats
import pytest

from slipstream import Server
from slipstream.log.record import Record
from slipstream.server.store_check import StoreUnavailable, check_store, repair_store
from slipstream.server.store_check.check import Checked
from tests.fix_server_process import CLI, run_to_end
from tests.server.store_check.stores import (
    MESSAGES,
    body_of,
    break_bytes,
    make_store,
    segments,
    tree,
)


def messages(checked: Checked) -> dict[str, list[tuple[int, int, bytes, bytes, bytes]]]:
    """Sequence, time, subject, header and body of every message, by stream."""
    found: dict[str, list[tuple[int, int, bytes, bytes, bytes]]] = {}
    for stream in checked.streams():
        record, seq = Record(), 0
        rows = found.setdefault(stream.name, [])
        while stream.log.next(seq, None, record):
            rows.append((record.seq, record.ts, record.subject, record.header(), record.body()))
            seq = record.seq + 1
    return found


async def test_a_repaired_store_has_all_that_can_be_read(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    await make_store(old)
    break_bytes(segments(old, "S")[0], body_of(77))
    before = tree(old)
    with check_store(str(old)) as checked:
        repair_store(checked, str(new))
        wanted = messages(checked)
    assert tree(old) == before
    assert not (tmp_path / "new.incomplete").exists()
    with check_store(str(new)) as checked:
        report = checked.report
        assert report.is_whole, report.problems
        assert messages(checked) == wanted
        assert len(wanted["S"]) == MESSAGES - 6
        [stream] = [stream for stream in report.streams if stream.name == "S"]
    assert (stream.first_seq, stream.last_seq) == (3, MESSAGES)
    [consumer] = stream.consumers
    assert (consumer.delivered, consumer.ack_floor, consumer.ack_pending) == (22, 12, 10)


async def test_a_server_goes_on_with_a_repaired_store(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    await make_store(old)
    found = run_to_end(*CLI, "check", str(old), "--repair", str(new))
    assert found.returncode == 0, found.stderr
    async with Server(store_dir=str(new)) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        assert (await js.publish("s.1", b"next")).seq == MESSAGES + 1
        reader = await js.pull_subscribe_bind("C", "S")
        assert (await reader.fetch(1))[0].metadata.sequence.stream == 23
        assert (await js.get_msg("S", 101)).headers == {"Number": "101"}
        worker = await js.pull_subscribe_bind("D", "Q")
        assert [m.data for m in await worker.fetch(7)] == [b"work " * 100] * 7
        await client.close()


async def test_long_gaps_stay_gaps(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with Server(store_dir=str(old)) as server:
        client = await nats.connect(server.url)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"])
        for i in range(3000):
            await client.publish(f"s.{i in (0, 2999)}", b"x")
        await client.flush()
        await js.purge_stream("S", subject="s.False")
        await js.add_stream(name="E", subjects=["e"])
        await js.publish("e", b"")
        await js.purge_stream("E")
        await client.close()
    with check_store(str(old)) as checked:
        repair_store(checked, str(new))
        wanted = [(s.name, s.messages, s.first_seq, s.last_seq) for s in checked.report.streams]
    begin = time.time_ns()
    with check_store(str(new)) as checked:
        assert checked.report.is_whole, checked.report
        found = [(s.name, s.messages, s.first_seq, s.last_seq) for s in checked.report.streams]
        assert all(row[1] < begin for rows in messages(checked).values() for row in rows)
    assert found == wanted
    assert {name: messages for name, messages, _, _ in found} == {"S": 2, "E": 0}


async def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    await make_store(store)
    other.mkdir()
    (other / "mine").write_text("precious")
    with check_store(str(store)) as checked, pytest.raises(StoreUnavailable, match="already"):
        repair_store(checked, str(other))
    assert tree(other) == {"mine": b"precious"}
    assert run_to_end(*CLI, "check", str(store), "--repair", str(store)).returncode == 2
