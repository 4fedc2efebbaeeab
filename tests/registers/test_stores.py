"""Every place for a register replaces it on a condition: memory, S3, a NATS bucket, a file."""

import asyncio
import fcntl
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

import slipstream
from slipstream.errors import ConfigError, Error
from slipstream.extras import MissingPackageError
from slipstream.registers import BucketRegister, FileRegister, ObjectRegister, open_register
from slipstream.server.cluster_options import RegisterOptions
from slipstream.server.group import RegisterStore
from tests.fix_nats_server import NatsServer

KINDS = ("memory", "s3", "bucket of nats-server", "bucket of slipstream", "file")
COUNT = """
import asyncio, sys
from slipstream.registers import FileRegister

async def count(register, rounds):
    for _ in range(rounds):
        while True:
            data, version = await register.get()
            if await register.put(b"%d" % (int(data or 0) + 1), version):
                break

asyncio.run(count(FileRegister(sys.argv[1], "C"), int(sys.argv[2])))
"""


async def make_bucket(url: str) -> RegisterOptions:
    name = uuid.uuid4().hex
    async with await slipstream.connect(url) as nc:
        await nc.jetstream().create_key_value(name)
    return RegisterOptions(url=url, bucket=name)


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RegisterStore]:
    """An empty one of each kind."""
    match request.param:
        case "memory":
            found: RegisterStore = ObjectRegister(MemoryStore(), "C.json", "memory://C.json")
        case "s3":
            found = open_register(
                RegisterOptions(url=f"{request.getfixturevalue('s3_bucket')}/groups"), "C"
            )
        case "bucket of nats-server":
            real: NatsServer = request.getfixturevalue("shared_nats_server")
            found = open_register(await make_bucket(real.url), "C")
        case "file":
            place: Path = request.getfixturevalue("tmp_path") / "a directory"
            found = open_register(RegisterOptions(url=place.as_uri()), "C")
        case _:
            with slipstream.Server() as server:
                found = open_register(await make_bucket(server.url), "C")
                yield found
                await found.close()
                return
    yield found
    await found.close()


async def test_it_is_replaced_at_the_version_that_is_named_alone(store: RegisterStore) -> None:
    assert await store.get() == (b"", "")
    assert await store.put(b"1", "")
    assert not await store.put(b"another", "")
    data, first = await store.get()
    assert data == b"1"
    assert await store.put(b"2", first)
    assert not await store.put(b"3", first)
    data, second = await store.get()
    assert data == b"2"
    assert second != first


async def test_a_key_that_was_deleted_is_there_no_more_and_has_a_version(
    shared_nats_server: NatsServer,
) -> None:
    options = await make_bucket(shared_nats_server.url)
    store = open_register(options, "C")
    assert await store.put(b"1", "")
    async with await slipstream.connect(shared_nats_server.url) as nc:
        bucket = await nc.jetstream().key_value(options.bucket)
        await bucket.delete("C")
        data, version = await store.get()
        assert not data
        assert not await store.put(b"2", "")
        assert await store.put(b"2", version)
    await store.close()


async def test_a_bucket_that_is_missing_is_an_error_that_says_how_to_make_it(
    shared_nats_server: NatsServer,
) -> None:
    store = open_register(RegisterOptions(url=shared_nats_server.url, bucket="none"), "C")
    with pytest.raises(Error, match="slipstream kv add none --replicas 3"):
        await store.get()
    await store.close()


async def test_a_connection_that_was_given_up_is_made_anew(shared_nats_server: NatsServer) -> None:
    """As after servers that refused who connects, twice in a row: they may have been set right."""
    store = BucketRegister(await make_bucket(shared_nats_server.url), "C")
    assert await store.put(b"1", "")
    assert store._connection is not None
    await store._connection.give_up(Error("refused"))
    assert (await store.get())[0] == b"1"
    await store.close()


async def test_what_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for options in (
        RegisterOptions(url="nats://127.0.0.1:9", bucket="b"),
        RegisterOptions(url="s3://bucket/groups"),
    ):
        store = open_register(options, "C")
        with pytest.raises(Error):
            await store.get()
        with pytest.raises(Error):
            await store.put(b"1", "")
        await store.close()


async def test_a_bucket_of_objects_that_is_missing_cannot_be_written(s3_bucket: str) -> None:
    store = open_register(RegisterOptions(url="s3://none/groups"), "C")
    with pytest.raises(Error, match=r"s3://none/groups/C\.json cannot be written"):
        await store.put(b"1", "")


async def test_a_store_without_conditions_says_so(tmp_path: object) -> None:
    store = ObjectRegister(LocalStore(str(tmp_path)), "C.json", "there")
    assert await store.put(b"1", "")
    _, version = await store.get()
    with pytest.raises(Error, match="cannot be written on a condition"):
        await store.put(b"2", version)


def test_a_url_that_obstore_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="write s3://, gs:// or az://"):
        open_register(RegisterOptions(url="s3://"), "C")


def test_without_obstore_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(MissingPackageError, match=r"slipstream\[objectstore\]"):
        open_register(RegisterOptions(url="s3://bucket/groups"), "C")


def test_processes_that_replace_a_file_at_once_each_do_so_at_the_version_they_read(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", COUNT, str(tmp_path), "50"]
    counting = [subprocess.Popen(words, env={**os.environ}) for _ in range(3)]
    assert [one.wait() for one in counting] == [0, 0, 0]
    assert (tmp_path / "C.json").read_bytes() == b"150"


async def test_a_file_whose_lock_another_process_keeps_is_an_error_that_says_so(
    tmp_path: Path,
) -> None:
    store = FileRegister(str(tmp_path), "C")
    assert await store.put(b"1", "")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with pytest.raises(Error, match="another process has had the lock"):
            await store.get()
    finally:
        os.close(directory)
    assert (await store.get())[0] == b"1"


async def test_a_put_that_ended_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    store = FileRegister(str(tmp_path), "C")
    assert await store.put(b"1", "")
    (tmp_path / "C.new").write_bytes(b"ha")
    data, version = await store.get()
    assert data == b"1"
    assert await store.put(b"2", version)
    assert (await store.get())[0] == b"2"


async def test_of_many_tasks_one_replaces_a_version_of_a_file(tmp_path: Path) -> None:
    stores = [FileRegister(str(tmp_path), "C") for _ in range(8)]
    done = await asyncio.gather(*(one.put(b"%d" % n, "") for n, one in enumerate(stores)))
    assert sum(done) == 1
    assert (await stores[0].get())[0] == b"%d" % done.index(True)
