"""`slipstream store import`: a store directory of nats-server becomes one of Slipstream."""

import json
import shutil
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig, StreamConfig

from slipstream import Server
from slipstream.archive.store_index import read_index
from slipstream.errors import CorruptionError
from slipstream.server.store_import import ImportRefusedError, import_store
from tests.fix_nats_server import start_nats_server
from tests.fix_server_process import CLI, run_to_end

STREAMS = ("ORDERS", "QUEUE", "PACKED", "EMPTY", "KV_settings", "OBJ_files")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A store that nats-server has left, and what it said of the streams before."""
    import asyncio

    server = start_nats_server(tmp_path_factory.mktemp("nats-server"))
    try:
        before = asyncio.run(_fill(server.url))
    finally:
        server.process.terminate()
        server.process.wait()
    return server.store_dir, before


async def _fill(url: str) -> dict[str, Any]:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_msgs_per_subject=20))
    for n in range(200):
        headers = {"Nats-Msg-Id": f"id-{n}"} if n % 3 == 0 else None
        await js.publish(f"orders.{n % 7}", b"order %d" % n, headers=headers)
    await js.delete_msg("ORDERS", 190)
    await js.add_stream(StreamConfig(name="QUEUE", subjects=["q.>"], retention="workqueue"))
    for n in range(10):
        await js.publish("q.x", b"job %d" % n)
    await js.add_consumer("QUEUE", ConsumerConfig(durable_name="W", ack_policy="explicit"))
    worker = await js.pull_subscribe_bind("W", "QUEUE")
    jobs = await worker.fetch(7)
    for at in (0, 2, 4):
        await jobs[at].ack_sync()
    await js.add_stream(StreamConfig(name="PACKED", subjects=["packed"], compression="s2"))
    for n in range(3000):
        await js.publish("packed", b"%d" % n + b"x" * 4000)
    await js.add_stream(StreamConfig(name="EMPTY", subjects=["empty"]))
    await js.publish("empty", b"gone")
    await js.purge_stream("EMPTY")
    bucket = await js.create_key_value(bucket="settings", history=3)
    for n in range(12):
        await bucket.put(f"k{n % 3}", b"%d" % n)
    await bucket.delete("k1")
    await bucket.put("once", b"1")
    await bucket.purge("k2")  # the blocks do not tell what a rollup has removed
    files = await js.create_object_store("files")
    await files.put("a.bin", b"z" * 300_000)
    found = await _look(client)
    await client.close()
    return found


async def _look(client: Any) -> dict[str, Any]:
    """Configuration, state and messages of each stream, and where its consumers are."""
    found: dict[str, Any] = {}
    for name in STREAMS:
        answer = await client.request(f"$JS.API.STREAM.INFO.{name}", b'{"deleted_details":true}')
        info = json.loads(answer.data)
        for volatile in ("ts", "cluster", "total", "offset", "limit", "type"):
            info.pop(volatile, None)
        info["config"]["metadata"] = None
        messages = []
        seq = info["state"]["first_seq"]
        while info["state"]["messages"] and seq <= info["state"]["last_seq"]:
            asked = json.dumps({"seq": seq, "next_by_subj": ">"}).encode()
            got = json.loads((await client.request(f"$JS.API.STREAM.MSG.GET.{name}", asked)).data)
            messages.append(got["message"])
            seq = got["message"]["seq"] + (1 if name != "PACKED" else 97)
            if name == "PACKED" and seq > info["state"]["last_seq"]:
                break
        consumers = json.loads((await client.request(f"$JS.API.CONSUMER.LIST.{name}", b"")).data)
        places = {
            one["name"]: [one["delivered"], one["ack_floor"], one["num_ack_pending"]]
            for one in consumers["consumers"] or ()
        }
        for place in places.values():
            for part in place[:2]:
                part.pop("last_active", None)
        found[name] = {"info": info, "messages": messages, "consumers": places}
    return found


async def test_streams_messages_buckets_and_consumers_are_as_they_were(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    source, before = foreign
    report = import_store(str(source), str(tmp_path / "store"))
    assert report.is_whole
    assert {stream.name for stream in report.streams} == set(STREAMS)
    async with Server(store_dir=str(tmp_path / "store")) as server:
        client = await nats.connect(server.url)
        after = await _look(client)
        for name in STREAMS:
            assert after[name] == before[name]
        js = client.jetstream()
        assert (await (await js.key_value("settings")).get("k0")).value == b"9"
        assert (await (await js.object_store("files")).get("a.bin")).data == b"z" * 300_000
        worker = await js.pull_subscribe_bind("W", "QUEUE")
        assert [m.data for m in await worker.fetch(3)] == [b"job 7", b"job 8", b"job 9"]
        await client.close()


def test_nothing_in_the_directory_of_nats_server_is_changed(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    source, _ = foreign
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    import_store(str(source), str(tmp_path / "store"))
    assert before == {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}


async def test_without_an_index_limits_remove_again_what_they_had(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(foreign[0], tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("index.db"):
        path.unlink()
    report = import_store(str(tmp_path / "copy"), str(tmp_path / "store"))
    assert report.is_whole
    [orders] = [stream for stream in report.streams if stream.name == "ORDERS"]
    assert orders.messages == 7 * 20


def test_the_index_of_each_stream_is_understood(foreign: tuple[Path, dict[str, Any]]) -> None:
    for name in STREAMS:
        index = foreign[0] / "jetstream" / "$G" / "streams" / name / "msgs" / "index.db"
        assert (
            read_index(index.read_bytes()).last_seq == foreign[1][name]["info"]["state"]["last_seq"]
        ), name


def test_a_stream_whose_files_lead_elsewhere_is_refused(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(foreign[0], tmp_path / "copy")
    messages = tmp_path / "copy" / "jetstream" / "$G" / "streams" / "QUEUE" / "msgs"
    (messages / "2.blk").symlink_to("/dev/zero")
    report = import_store(str(tmp_path / "copy"), str(tmp_path / "store"))
    [queue] = [stream for stream in report.streams if stream.name == "QUEUE"]
    assert "msgs/2.blk is no regular file" in queue.problem
    assert sum(not stream.problem for stream in report.streams) == len(STREAMS) - 1


def test_what_cannot_be_taken_over_is_named_and_the_rest_is_there(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(foreign[0], tmp_path / "copy")
    streams = tmp_path / "copy" / "jetstream" / "$G" / "streams"
    (streams / "ORDERS" / "meta.inf").write_bytes(b'{"name":')
    (streams / "EMPTY" / "meta.key").write_bytes(b"sealed")
    [block] = (streams / "QUEUE" / "msgs").glob("*.blk")
    block.write_bytes(block.read_bytes()[:100])
    done = run_to_end(*CLI, "store", "import", str(tmp_path / "copy"), str(tmp_path / "new"))
    assert done.returncode == 1
    assert "ORDERS was not taken over" in done.stderr
    assert "it is encrypted" in done.stderr
    assert "QUEUE was not taken over: a block ends within a record" in done.stderr
    assert "3 of 6 streams are in" in done.stdout
    again = run_to_end(*CLI, "--json", "store", "import", str(foreign[0]), str(tmp_path / "new"))
    assert again.returncode == 0
    streams = json.loads(again.stdout)["streams"]
    taken = [one["name"] for one in streams if not one["is_there_already"]]
    assert taken == ["EMPTY", "ORDERS", "QUEUE"]


def problem_with(foreign: Path, folder: Path, **changed: str) -> str:
    """What keeps a stream from being taken over whose meta.inf says something else."""
    shutil.copytree(foreign, folder / "copy")
    meta = folder / "copy" / "jetstream" / "$G" / "streams" / "EMPTY" / "meta.inf"
    meta.write_text(json.dumps(json.loads(meta.read_bytes()) | changed))
    report = import_store(str(folder / "copy"), str(folder / "store"))
    [problem] = [stream.problem for stream in report.streams if stream.problem]
    return problem


def test_another_stream_of_the_same_name_is_left_alone(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    import_store(str(foreign[0]), str(tmp_path / "store"))
    problem = problem_with(foreign[0], tmp_path, Created="2001-01-01T00:00:00Z")
    assert "another stream of this name" in problem


def test_a_name_that_is_a_path_is_refused(
    foreign: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    problem = problem_with(foreign[0], tmp_path, name="../../EMPTY")
    assert "its configuration names it" in problem


def test_a_directory_that_is_invalid_of_nats_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefusedError, match="no store directory of nats-server"):
        import_store(str(tmp_path), str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_store_of_nats_server_is_not_imported_into_itself(
    foreign: tuple[Path, dict[str, Any]],
) -> None:
    with pytest.raises(ImportRefusedError, match="name another one"):
        import_store(str(foreign[0]), str(foreign[0]))


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_damaged_index_is_not_believed(foreign: tuple[Path, dict[str, Any]], at: int) -> None:
    index = foreign[0] / "jetstream" / "$G" / "streams" / "QUEUE" / "msgs" / "index.db"
    data = index.read_bytes()
    assert read_index(data).removed == {3, 5}
    with pytest.raises(CorruptionError):
        read_index(data[:at] or b"\0")
