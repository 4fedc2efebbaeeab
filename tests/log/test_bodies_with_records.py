"""What a client stores is never taken for a record of the log, and no number on disk is believed
that cannot be."""

import struct
import zlib
from random import Random

import pytest

from slipstream.errors import CorruptionError
from slipstream.log import damage
from slipstream.log.columns import Column
from slipstream.log.packing import inflate
from slipstream.log.record import (
    COMMIT,
    END,
    FRONT,
    MESSAGE,
    SKIP,
    TOMBSTONE,
    Record,
    encode,
    length_at,
)
from slipstream.log.recovery import open_log
from slipstream.log.segment import (
    HEADER_SIZE,
    Segment,
    decode_header,
    first_format_salt,
    read_footer,
    scan_records,
)
from slipstream.testing.simulated_disk import SECTOR, SimulatedDisk
from slipstream.wire.buffer import OutBuffer
from tests.log.storing import commit, fill, opened, put, readable
from tests.log.twins import load_twins


def whole_file(subject: bytes) -> bytes:
    """The segment file of some other stream, closed in order."""
    disk = SimulatedDisk(Random(7))
    log = open_log(disk, "log")
    for _ in range(40):
        put(log, subject, b"another stream's")
    log.remove(3, False)
    log.close()
    return disk.read(disk.files(".seg")[0])


def forged(salt: int) -> bytes:
    """Records that would be another message, and would remove all others or fill the memory."""
    out = OutBuffer()
    encode(out, MESSAGE, salt, 5, 0, b"forged.subject", b"forged", 0, 0, 6)
    for kind, body in (
        (SKIP, (1 << 62).to_bytes(8, "little")),
        (FRONT, (9).to_bytes(8, "little")),
        (TOMBSTONE, struct.pack("<QI", 1, 4)),
        (END, (1 << 62).to_bytes(8, "little")),
    ):
        encode(out, kind, salt, 6, 0, b"", body, 0, 0, len(body))
    return out.take()


def own_file(disk: SimulatedDisk) -> bytes:
    return disk.read(disk.files(".seg")[-1])


def own_records(disk: SimulatedDisk) -> bytes:
    """The last segment up to the end of its last record."""
    data = own_file(disk)
    records = scan_records(data, 1, decode_header(data).salt)
    return data[: max(record.end for record, _ in records)]


def place_of(disk: SimulatedDisk, seq: int) -> int:
    """Where a message is in the last segment."""
    data = own_file(disk)
    records = scan_records(data, 1, decode_header(data).salt)
    return next(at for record, at in records if (record.seq, record.kind) == (seq, MESSAGE))


@pytest.mark.parametrize("body", ["another stream's file", "its own file", "forged"])
@pytest.mark.parametrize("harm", ["body", "length", "magic", "kind"])
def test_a_damaged_message_that_contains_records_costs_itself_alone(body: str, harm: str) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 5)
    commit(log)
    text = {
        "another stream's file": whole_file(b"other.stream"),
        "its own file": own_file(disk),
        "forged": forged(first_format_salt(1)) + forged(0),
    }[body]
    put(log, b"s.0", text)
    fill(log, 5)
    commit(log)
    path = disk.files(".seg")[-1]
    at = place_of(disk, 6)
    disk.crash()
    offset = {
        "body": at + 24 + 5 + len(text) - 3,
        "length": at + 5,
        "magic": at + 8,
        "kind": at + 9,
    }
    disk.flip(path, 8 * offset[harm])
    log = opened(disk, 1 << 20)
    assert readable(log) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert (log.last_seq, log.lost.sequences) == (11, [6])
    assert log.subject_counts(b">") == {"s.0": 2, "s.1": 4, "s.2": 4}


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("tail", [b"", b"not a record"])
def test_what_is_damaged_before_records_in_a_body_is_lost_or_found_there(
    first: int, copies: int, tail: bytes
) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    for _ in range(5):
        fill(log, 1)
        commit(log)
    put(log, b"s.0", copies * (own_records(disk) + tail))
    commit(log)
    fill(log, 5)
    commit(log)
    log.save_end()
    disk.crash()
    start, end = place_of(disk, first), place_of(disk, 6) + 9
    disk.overwrite(disk.files(".seg")[0], start, bytes(end - start))
    for _ in range(2):
        log = opened(disk, 1 << 20)
        assert log.lost.sequences == [6]
        assert readable(log) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("kind", ["early", "same", "damaged"])
def test_copies_with_other_bytes_between_them_do_not_hide_what_is_lost(kind: str) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    for _ in range(6):
        put(log, b"s.0", bytes(100))
        commit(log)
    data = own_records(disk)
    at = [place_of(disk, seq) for seq in range(1, 7)]
    copy = {seq: data[at[seq - 1] :][: length_at(data, at[seq - 1])] for seq in range(1, 7)}
    longer = bytearray(copy[3])
    longer[4:8] = (len(longer) + 3000).to_bytes(4, "little")
    body = {
        "early": copy[2] + 40 * copy[1] + copy[4] + copy[6],
        "same": 41 * copy[3] + copy[4] + copy[6],
        "damaged": copy[2] + bytes(longer) + bytes(3000) + copy[4] + copy[6],
    }[kind]
    put(log, b"s.0", body)
    fill(log, 5)
    commit(log)
    log.save_end()
    disk.crash()
    end = place_of(disk, 7) + 9
    disk.overwrite(disk.files(".seg")[0], at[1], bytes(end - at[1]))
    log = opened(disk, 1 << 20)
    record = Record()
    found: list[int] = []
    while log.next(found[-1] + 1 if found else 1, None, record):
        found.append(record.seq)
    assert sorted([*found, *log.lost.sequences]) == list(range(1, 13))
    assert {5, 7} <= set(log.lost.sequences)


def test_what_was_skipped_just_behind_a_damaged_message_is_not_lost() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 5)
    commit(log)
    for _ in range(50):
        log.skip(1_000)
    commit(log)
    fill(log, 5)
    commit(log)
    disk.crash()
    disk.flip(disk.files(".seg")[0], 8 * (place_of(disk, 4) + 5))
    log = opened(disk, 1 << 20)
    assert log.lost.sequences == [4]
    assert readable(log) == [1, 2, 3, 5, *range(56, 61)]


def test_what_was_skipped_behind_a_damaged_message_is_not_lost() -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 10)
    for _ in range(3):
        log.skip(1_000)
        fill(log, 1)
    commit(log)
    disk.crash()
    disk.flip(disk.files(".seg")[0], 8 * (place_of(disk, 5) + 5))
    log = opened(disk, 1 << 20)
    assert readable(log) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 16]
    assert log.lost.sequences == [5]


@pytest.mark.parametrize("is_durable", [False, True])
def test_what_a_crash_took_before_records_in_a_body_is_lost_if_it_was_durable(
    is_durable: bool,
) -> None:
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 5)
    commit(log)
    fill(log, 10)
    batch = log.prepare_sync()
    assert batch is not None
    batch.run()
    if is_durable:
        log.finish_sync(batch)
    put(log, b"s.0", own_records(disk))
    fill(log, 5)
    commit(log)
    disk.crash()
    start, end = (-(-place_of(disk, seq) // SECTOR) * SECTOR for seq in (6, 16))
    disk.overwrite(disk.files(".seg")[0], start, bytes(end - start))
    for _ in range(2):
        log = opened(disk, 1 << 20)
        assert readable(log) == [*range(1, 16), *range(17, 22)]
        assert log.lost.sequences == ([16] if is_durable else [])


def test_segments_have_secrets_of_their_own() -> None:
    salts = set()
    for seed in range(3):
        disk = SimulatedDisk(Random(seed))
        log = opened(disk)
        fill(log, 40)
        commit(log)
        salts |= {decode_header(disk.read(path)).salt for path in disk.files(".seg")}
    assert len(salts) == 9


def old_segment(count: int) -> bytes:
    """A segment of the first format, as an earlier version left it when it was killed."""
    salt = first_format_salt(1)
    head = struct.pack("<8sQ12x", b"SLIPSEG1", 1)
    out = OutBuffer()
    for place in range(count):
        body = (b"message %d " % (place + 1)).ljust(100, b".")
        encode(out, MESSAGE, salt, place, place, b"s.1", body, 0, 0, 100)
    encode(out, TOMBSTONE, salt, count, count, b"", struct.pack("<QI", 3, 1), 0, 0, 12)
    return head + zlib.crc32(head).to_bytes(4, "little") + out.take()


def test_a_log_of_the_first_format_opens_and_goes_on_in_segments_with_a_secret() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("log")
    file = disk.open(f"log/{1:020d}.seg")
    file.append(old_segment(10))
    file.sync()
    disk.sync_dir("log")
    for _ in range(3):
        log = opened(disk)
        assert readable(log)[:9] == [1, 2, 4, 5, 6, 7, 8, 9, 10]
        fill(log, 3)
        commit(log)
        log.close()
    first, *others = disk.files(".seg")
    assert decode_header(disk.read(first)).format == 1
    assert others
    assert all(decode_header(disk.read(path)).format == 2 for path in others)
    log = opened(disk)
    assert (log.messages, log.lost.count) == (18, 0)


def test_a_log_of_the_first_format_without_its_beginning_loses_what_lay_there() -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("log")
    disk.open(f"log/{1:020d}.seg").append(bytes(HEADER_SIZE + 20) + old_segment(10)[52:])
    for _ in range(2):
        log = opened(disk)
        assert readable(log) == [2, 4, 5, 6, 7, 8, 9, 10]
        assert log.lost.sequences == [1]
        log.close()


def with_control(kind: int, body: bytes) -> SimulatedDisk:
    """A log of five messages, and a control record that checks out behind them."""
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 5)
    commit(log)
    log.close()
    path = disk.files(".seg")[0]
    salt = decode_header(disk.read(path)).salt
    out = OutBuffer()
    encode(out, kind, salt, 5, 5, b"", body, 0, 0, len(body))
    encode(out, MESSAGE, salt, 5, 5, b"s.0", b"message 6 ".ljust(100, b"."), 0, 0, 100)
    encode(out, COMMIT, salt, 6, 5, b"", b"\0\0\0\0", 0, 0, 4)
    file = disk.open(path)
    file.append(out.take())
    file.sync()
    return disk


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (SKIP, (1 << 62).to_bytes(8, "little")),
        (SKIP, (6).to_bytes(8, "little")),
        (SKIP, b"short"),
        (FRONT, (7).to_bytes(8, "little")),
        (FRONT, (0).to_bytes(8, "little")),
        (TOMBSTONE, struct.pack("<QI", 1, 0)),
        (TOMBSTONE, struct.pack("<QI", 3, 4)),
        (TOMBSTONE, struct.pack("<QI", 0, 2)),
        (TOMBSTONE, struct.pack("<QI", 1, 2)[:-1]),
        (END, (3).to_bytes(8, "little")),
        (END, ((1 << 64) - 1).to_bytes(8, "little")),
        (COMMIT, (1 << 31).to_bytes(4, "little")),
        (COMMIT, b""),
    ],
)
def test_a_control_record_that_says_what_can_not_be_is_damage(kind: int, body: bytes) -> None:
    log = opened(with_control(kind, body), 1 << 20)
    assert readable(log) == [1, 2, 3, 4, 5, 6]
    assert (log.last_seq, log.lost.count) == (6, 0)
    assert log.lost.bytes == 24 + len(body)


def test_an_end_far_away_costs_no_memory() -> None:
    disk = with_control(END, (1 << 61).to_bytes(8, "little"))
    log = opened(disk, 1 << 20)
    assert log.last_seq == 1 << 61
    assert sum(len(segment.ids) for segment in log.blocks if segment.ids is not None) < 10


def test_a_footer_that_a_client_stored_is_not_believed() -> None:
    file = whole_file(b"other.stream")
    disk = SimulatedDisk(Random(1))
    log = opened(disk, 1 << 20)
    fill(log, 5)
    commit(log)
    footer = int.from_bytes(file[-20:-12], "little")
    begin = len(own_records(disk)) + 24 + 3  # where the body will stand
    old = zlib.crc32(file[footer:-20])  # as if all of it were the first part
    file = file[:-20] + struct.pack("<QI4s", begin + footer, old, b"SLFT")
    put(log, b"s.0", file)
    commit(log)
    log.save_end()
    commit(log)
    disk.crash()
    path = disk.files(".seg")[0]
    data = disk.read(path)
    disk.cut(path, data.index(file) + len(file))
    log = opened(disk, 1 << 20)
    assert [seq for seq in range(1, 50) if log.holds(seq)] == [1, 2, 3, 4, 5, 6]
    assert log.subject_counts(b">") == {"s.0": 2, "s.1": 2, "s.2": 2}


def closed_log() -> tuple[SimulatedDisk, str]:
    disk = SimulatedDisk(Random(1))
    log = opened(disk)
    for _ in range(40):
        fill(log, 1)
        commit(log)
    log.close()
    return disk, disk.files(".seg")[0]


HEAD = struct.Struct("<IIQqqQQQQBIIIIII")
NUMBERS = ("places", "live", "bytes", "first_ts", "last_ts", "records_end", "front", "last_seq",
           "as_of", "width", "names", "stats", "removed_ranges", "ids", "steps", "crc")  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, 1, 3, 0x7F, 1 << 31, (1 << 64) - 1])
def test_a_footer_that_checks_out_and_says_what_can_not_be_costs_nothing(
    name: str, value: int
) -> None:
    if name in ("bytes", "first_ts", "last_ts"):
        return  # any number can be
    disk, path = closed_log()
    data = disk.read(path)
    salt = decode_header(data).salt
    at, _, _, magic = struct.unpack("<QII4s", data[-20:])
    fields = list(HEAD.unpack_from(data, at))
    size = struct.calcsize("<" + HEAD.format.lstrip("<")[NUMBERS.index(name)])
    fields[NUMBERS.index(name)] = value & ((1 << 8 * size) - 1)
    head = HEAD.pack(*fields)
    first = head + data[at + HEAD.size : at + HEAD.size + sum(HEAD.unpack_from(data, at)[10:13])]
    if name in ("names", "stats", "removed_ranges"):
        first = (head + data[at + HEAD.size : -20])[: HEAD.size + sum(fields[10:13])]
    crc = zlib.crc32(first, salt)
    disk.overwrite(path, at, head)
    disk.overwrite(path, len(data) - 20, struct.pack("<QII4s", at, salt, crc, magic))
    log = opened(disk)
    assert [seq for seq in readable(log) if seq > 14] == list(range(15, 41))
    if name not in ("front", "as_of", "last_seq"):
        assert readable(log) == list(range(1, 41))


def test_a_width_of_nothing_is_an_error_in_both_builds() -> None:
    _, twin, _ = load_twins()
    for column in (Column, twin.Column):
        for width in (0, 3, 8, -1):
            with pytest.raises(ValueError, match="cannot have"):
                column.unpack(b"12345678", width)
        with pytest.raises(ValueError, match="cannot have"):
            column.unpack(b"123", 2)


def test_what_is_packed_small_does_not_fill_the_memory() -> None:
    bomb = zlib.compress(bytes(50_000_000), 9)
    with pytest.raises(CorruptionError, match="more than it may have"):
        inflate(bomb, 1_000, "a test")
    assert inflate(zlib.compress(b"x" * 1_000), 1_000, "a test") == b"x" * 1_000
    assert inflate(zlib.compress(b""), 0, "a test") == b""


def test_a_length_that_was_damaged_is_not_read_for_memory() -> None:
    disk, path = closed_log()
    sizes = []
    log = opened(disk)
    log.read(20, Record())  # the file is open
    segment: Segment = log.blocks[0]

    class Counting:
        def __init__(self) -> None:
            self.inner = disk.open(path)

        def pread(self, offset: int, size: int) -> bytes:
            sizes.append(size)
            return self.inner.pread(offset, size)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    segment.file = Counting()
    disk.overwrite(path, HEADER_SIZE + 4, b"\xff\xff\xff\xff")
    log.reader.changed(segment)
    assert readable(log)[0] == 2
    assert max(sizes) <= 1 << 17


@pytest.mark.parametrize(
    "name",
    [
        "0" * 20 + "-1.lost-1-99999999999999999999999",
        "0" * 20 + "-1.lost-5-2",
        "0" * 20 + "-1.lost-1-9999999999999999999",
    ],
)
def test_a_note_that_can_not_be_counts_no_messages(name: str) -> None:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("log/damaged")
    disk.open(f"log/damaged/{name}").append(b"1234")
    assert damage.recall(disk, "log").count == 0
    assert opened(disk).last_seq == 0


def test_a_footer_of_the_first_format_is_refused_in_a_segment_with_a_secret() -> None:
    disk, path = closed_log()
    data = disk.read(path)
    at = int.from_bytes(data[-20:-12], "little")
    first = data[at : at + HEAD.size + sum(HEAD.unpack_from(data, at)[10:13])]
    old = struct.pack("<QI4s", at, zlib.crc32(first), b"SLFT")
    disk.overwrite(path, len(data) - 20, b"\0\0\0\0" + old)
    segment = Segment(1, path)
    segment.salt = decode_header(data).salt
    with pytest.raises(CorruptionError, match="footer of another"):
        read_footer(disk.open(path), segment)
    assert readable(opened(disk)) == list(range(1, 41))
