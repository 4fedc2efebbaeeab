"""Streams with compression: smaller on disk, the same to everybody who reads."""

import random
from pathlib import Path

import pytest

from slipstream.log.disk import OsDisk
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.recovery import open_log

HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"


def store(log: FileLog, bodies: list[bytes], header: bytes = b"") -> None:
    """Append and make durable."""
    for n, body in enumerate(bodies):
        log.append(b"a.%d" % (n % 3), header + body, 0, len(header), len(header + body), n + 1)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)


def read_all(log: FileLog) -> list[tuple[bytes, bytes]]:
    """Headers and bodies in order."""
    record = Record()
    found = []
    seq = log.first_seq
    while log.next(seq, None, record):
        found.append((record.header(), record.body()))
        seq = record.seq + 1
    return found


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    """An empty log that packs."""
    made = open_log(OsDisk(), str(tmp_path / "log"))
    made.packs = True
    return made


@pytest.mark.parametrize("header", [b"", HEADER])
def test_what_was_packed_is_read_as_it_was_published(log: FileLog, header: bytes) -> None:
    chance = random.Random(1)
    bodies = [b"", b"short", b"x" * 5000, chance.randbytes(3000), b"abc" * 400]
    store(log, bodies, header)
    assert read_all(log) == [(header, body) for body in bodies]


def test_sizes_count_what_was_published_also_after_a_crash(log: FileLog, tmp_path: Path) -> None:
    bodies = [b"x" * n for n in (10, 1000, 20_000)]
    store(log, bodies, HEADER)
    counted = log.bytes
    assert counted == sum(log.size_of(3, len(HEADER), len(body)) for body in bodies)
    again = open_log(OsDisk(), log.directory)
    assert again.bytes == counted
    assert [body for _, body in read_all(again)] == bodies
    assert again.remove(2, False)
    assert again.bytes == counted - again.size_of(3, len(HEADER), 1000)


def test_a_compressed_stream_takes_less_of_the_disk(log: FileLog) -> None:
    store(log, [b"the same words again and again " * 100] * 100)
    log.close()
    used = sum(path.stat().st_size for path in Path(log.directory).rglob("*.seg"))
    assert used < log.bytes / 10


def test_erasing_a_packed_message_destroys_its_bytes(log: FileLog) -> None:
    secret = b"secret secret secret " * 20
    store(log, [b"y" * 500, secret, b"z" * 500])
    assert log.remove(2, True)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    log.finish_sync(batch)
    again = open_log(OsDisk(), log.directory)
    assert [body for _, body in read_all(again)] == [b"y" * 500, b"z" * 500]
