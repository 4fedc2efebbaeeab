"""A directory of the real nats-server's file store is read as what the server says that it has."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from slipstream.archive.file_store import (
    blocks,
    consumers,
    read_position,
    records,
    store_blocks,
    unpacked,
)
from slipstream.archive.tar import KeptInMemory, TarFiles
from slipstream.errors import CorruptionError
from slipstream.log.memory_log import MemoryLog
from slipstream.log.record import Record
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import start_nats_server, stop_nats_server


class Directory:
    """A stream's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """All paths."""
        found = [path for path in self.path.rglob("*") if path.is_file()]
        return [str(path.relative_to(self.path)) for path in found]

    def read(self, name: str) -> bytes:
        """The content of one."""
        return (self.path / name).read_bytes()


def fill(client: RawClient, compression: str) -> dict[int, Any]:
    """A stream from which messages were removed in all ways; what is left of it."""
    config = {
        "name": "S", "subjects": ["s.>"], "compression": compression, "max_bytes": 4_000_000,
    }  # fmt: skip
    assert "error" not in client.api("STREAM.CREATE.S", config)
    for i in range(400):
        client.request(
            f"s.{i % 5}", b"body %d " % i + bytes(15_000), {"A": str(i)} if i % 2 else None
        )
    for seq, erase in ((350, True), (351, False)):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": not erase})
    client.api("STREAM.PURGE.S", {"filter": "s.3"})
    asked = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": asked})
    state = client.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    deleted = set(state.get("deleted", ()))
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = client.api("STREAM.MSG.GET.S", {"seq": seq})
        assert ("error" in answer) == (seq in deleted)
        if "error" not in answer:
            found[seq] = answer["message"]["subject"]
    return found


@pytest.mark.parametrize("compression", ["none", "s2"])
def test_a_directory_of_nats_server_is_read(tmp_path: Path, compression: str) -> None:
    server = start_nats_server(tmp_path)
    try:
        with RawClient(server.port) as client:
            expected = fill(client, compression)
    finally:
        stop_nats_server(server)
    files = Directory(server.store_dir / "jetstream" / "$G" / "streams" / "S")
    log = MemoryLog()
    # What a limit has removed from the front leaves no trace in the blocks.
    assert list(store_blocks(files, log, min(expected)))[-1] == 400
    found, record, seq = {}, Record(), 1
    while log.next(seq, None, record):
        found[record.seq] = record.subject.decode()
        assert record.body().startswith(b"body %d " % (record.seq - 1))
        assert bool(record.header()) == (record.seq % 2 == 0)
        seq = record.seq + 1
    assert found == expected
    assert [name for name, _ in consumers(files)] == ["c"]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in files.names():
            tar.add(files.path / name, name)
    kept = TarFiles(KeptInMemory())
    for at in range(0, len(archive.getvalue()), 100_000):
        kept.feed(archive.getvalue()[at : at + 100_000])
    kept.finish()
    assert sorted(kept.names()) == sorted(files.names())
    assert all(kept.read(name) == files.read(name) for name in files.names())
    assert blocks(kept) == blocks(files)


def test_a_position_has_what_is_out_and_what_was_delivered_again() -> None:
    data = bytes.fromhex("1602 0101 0405 03 e4c19ab00d 010104 030204 040304 01 0102")
    state = read_position(data)
    assert state["ack_floor"] == {"consumer_seq": 1, "stream_seq": 1}
    assert state["delivered"] == {"consumer_seq": 4, "stream_seq": 5}
    assert {seq: out["Sequence"] for seq, out in state["pending"].items()} == {
        "2": 2, "4": 3, "5": 4,
    }  # fmt: skip
    assert state["redelivered"] == {"2": 2}
    assert read_position(b"") == {}


@pytest.mark.parametrize("data", [b"\x16\x01\x00", b"\x00\x02", b"\x16\x02\x01\x01\x04", b"\x16"])
def test_a_position_that_can_not_be_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_position(data)


@pytest.mark.parametrize(
    "data",
    [
        b"short",
        bytes(40),
        (1 << 20).to_bytes(4, "little") + bytes(40),
        (40).to_bytes(4, "little") + bytes(16) + b"\xff\xff" + bytes(20),
        ((1 << 31) + 40).to_bytes(4, "little") + bytes(18) + b"\xff\xff\xff\x7f" + bytes(20),
    ],
)
def test_a_block_that_can_not_be_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        list(records(data))


def test_what_is_no_tar_is_refused() -> None:
    for data in (b"", b"hello", os.urandom(2000)):
        kept = TarFiles(KeptInMemory())
        kept.feed(data)
        with pytest.raises(CorruptionError):
            kept.finish()
    with pytest.raises(CorruptionError):
        unpacked(b"cmp\x01\x05no frame" + bytes(8))


def test_a_small_block_that_claims_to_hold_gigabytes_is_refused_before_it_fills_memory() -> None:
    head = bytes.fromhex("ff060000") + b"S2sTwO"
    mebibyte = bytes.fromhex("001500002b13a7ba8080400000fe01001d00b8ff0e08000000")  # of zeros
    block = b"cmp\x01\x00" + head + mebibyte * 300 + bytes(8)
    assert len(block) < 10_000
    with pytest.raises(CorruptionError, match="holds more than a block can"):
        unpacked(block, bytes_max=3 << 20)


def test_a_sparse_file_of_an_archive_does_not_fill_memory() -> None:
    """Its size is that of the file with its holes, of which the archive holds nothing."""
    member = tarfile.TarInfo("msgs/1.blk")
    member.pax_headers = {
        "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,0",
    }  # fmt: skip
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as file:
        file.addfile(member)
    kept = TarFiles(KeptInMemory())
    kept.feed(archive.getvalue())
    kept.finish()
    with pytest.raises(CorruptionError, match="larger than a file of a stream can be"):
        kept.read("msgs/1.blk")
