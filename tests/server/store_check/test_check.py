"""`slipstream check` finds what is damaged, says which messages it cost, and changes nothing."""

import json
import shutil
from pathlib import Path

import nats
import pytest

from slipstream import Server
from slipstream.server.store_check import Report, StoreUnavailable, check_store
from slipstream.server.store_check.check import StreamReport
from tests.fix_server_process import CLI, run_to_end
from tests.server.store_check.stores import (
    MESSAGES,
    body_of,
    break_bytes,
    make_store,
    segments,
    tree,
)


def look(directory: Path) -> Report:
    with check_store(str(directory)) as checked:
        return checked.report


def stream_of(report: Report, name: str) -> StreamReport:
    [found] = [stream for stream in report.streams if stream.name == name]
    return found


async def test_a_whole_store_is_said_to_be_whole(tmp_path: Path) -> None:
    await make_store(tmp_path)
    before = tree(tmp_path)
    report = look(tmp_path)
    assert report.is_whole
    assert not report.problems
    assert {stream.name for stream in report.streams} == {"S", "Q"}
    stream = stream_of(report, "S")
    assert (stream.messages, stream.first_seq, stream.last_seq) == (MESSAGES - 5, 3, MESSAGES)
    [consumer] = stream.consumers
    assert (consumer.name, consumer.delivered, consumer.ack_pending) == ("C", 22, 10)
    assert consumer.ack_floor == 12
    assert stream_of(report, "Q").messages == 7
    assert tree(tmp_path) == before


async def test_a_damaged_message_is_named_and_the_store_stays_as_it_is(tmp_path: Path) -> None:
    await make_store(tmp_path)
    break_bytes(segments(tmp_path, "S")[0], body_of(77))
    before = tree(tmp_path)
    report = look(tmp_path)
    stream = stream_of(report, "S")
    assert not report.is_whole
    assert stream.lost == [(77, 77)]
    assert (stream.messages, stream.lost_messages) == (MESSAGES - 6, 1)
    [damage] = stream.damage
    assert (damage.first_seq, damage.last_seq, damage.is_known) == (77, 77, False)
    assert damage.bytes > len(body_of(77))
    assert (tmp_path / "jetstream" / "$G" / "S" / damage.file).exists()
    assert stream_of(report, "Q").lost_messages == 0
    assert tree(tmp_path) == before


async def test_what_a_server_has_found_before_is_said_to_be_known(tmp_path: Path) -> None:
    await make_store(tmp_path)
    break_bytes(segments(tmp_path, "S")[0], body_of(77))
    async with Server(store_dir=str(tmp_path)) as server:
        client = await nats.connect(server.url)
        for seq in (76, 78):
            await client.jetstream().get_msg("S", seq)
        with pytest.raises(nats.js.errors.NotFoundError):
            await client.jetstream().get_msg("S", 77)
        await client.close()
    report = look(tmp_path)
    assert stream_of(report, "S").lost == [(77, 77)]
    assert [damage.is_known for damage in stream_of(report, "S").damage] == [True]
    assert not report.is_whole


async def test_a_missing_segment_costs_its_messages(tmp_path: Path) -> None:
    await make_store(tmp_path)
    for path in segments(tmp_path, "S"):
        path.unlink()
    stream = stream_of(look(tmp_path), "S")
    assert stream.messages == 0
    assert stream.last_seq == MESSAGES
    assert stream.lost[-1][1] == MESSAGES


async def test_a_configuration_that_nobody_can_read_is_a_problem_of_its_stream(
    tmp_path: Path,
) -> None:
    await make_store(tmp_path)
    for copy in (tmp_path / "jetstream" / "$G" / "S").glob("meta.*"):
        copy.write_bytes(b"nonsense")
    report = look(tmp_path)
    assert stream_of(report, "S").is_unreadable
    assert "could not be recovered" in stream_of(report, "S").problem
    assert stream_of(report, "Q").messages == 7
    assert not report.is_whole


async def test_a_damaged_copy_of_a_configuration_is_a_problem(tmp_path: Path) -> None:
    await make_store(tmp_path)
    (tmp_path / "jetstream" / "$G" / "S" / "meta.0").write_bytes(b"nonsense")
    report = look(tmp_path)
    assert "may have an older configuration" in stream_of(report, "S").problem
    assert not report.is_whole


async def test_a_position_that_nobody_can_read_is_a_problem_of_its_consumer(tmp_path: Path) -> None:
    await make_store(tmp_path)
    for copy in (tmp_path / "jetstream" / "$G" / "S" / "consumers" / "C").glob("state.*"):
        copy.write_bytes(b"nonsense")
    report = look(tmp_path)
    [consumer] = stream_of(report, "S").consumers
    assert "begins anew" in consumer.problem
    assert not report.is_whole


async def test_what_is_in_the_commit_log_alone_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with Server(store_dir=str(first)) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="S", subjects=["s"], description="old")
        await client.jetstream().update_stream(name="S", subjects=["s", "t"], description="new")
        shutil.copytree(first, second)  # as a crash leaves it
        await client.close()
    assert not (second / "jetstream" / "$G" / "S" / "meta.0").exists()
    with check_store(str(second)) as checked:
        [stream] = checked.streams()
        assert stream.config.description == "new"
        assert checked.report.is_whole


async def test_a_store_that_a_server_uses_is_left_alone(tmp_path: Path) -> None:
    async with Server(store_dir=str(tmp_path)):
        with pytest.raises(StoreUnavailable, match="a server uses the store directory"):
            look(tmp_path)


async def test_no_server_starts_on_a_store_that_is_looked_at(tmp_path: Path) -> None:
    await make_store(tmp_path)
    with check_store(str(tmp_path)), pytest.raises(Exception, match="another server uses"):
        async with Server(store_dir=str(tmp_path)):
            pass


def test_a_directory_that_is_no_store_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no store directory"):
        look(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


# -- the command -------------------------------------------------------------------------------


async def test_the_command_ends_with_0_1_or_2(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await make_store(store)
    whole = run_to_end(*CLI, "check", str(store))
    assert (whole.returncode, whole.stderr) == (0, "")
    assert f"{store} is whole." in whole.stdout
    break_bytes(segments(store, "S")[0], body_of(77))
    damaged = run_to_end(*CLI, "check", str(store))
    assert damaged.returncode == 1
    assert "$G > S has lost 77" in damaged.stdout
    missing = run_to_end(*CLI, "check", str(tmp_path / "nothing"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no store directory" in missing.stderr


async def test_programs_get_all_of_it_as_json(tmp_path: Path) -> None:
    await make_store(tmp_path)
    break_bytes(segments(tmp_path, "S")[0], body_of(77))
    found = run_to_end(*CLI, "check", "--json", str(tmp_path))
    assert found.returncode == 1
    report = json.loads(found.stdout)
    assert report["is_whole"] is False
    [stream] = [stream for stream in report["streams"] if stream["name"] == "S"]
    assert stream["lost"] == [[77, 77]]
    assert stream["damage"][0]["first_seq"] == 77
