"""What the commit log has of segments is written to them again in as few pieces as it comes in."""

import struct
from random import Random

from slipstream.log.commit_entry import HEAD_SIZE, KEEP, REMOVE, WRITE, Head, Record, encode_entry
from slipstream.log.commit_replay import replay
from slipstream.log.record import ERASED, MESSAGE, encode
from slipstream.log.segment import HEADER_SIZE, Segment, encode_header
from slipstream.log.written_again import write_again
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.wire.buffer import OutBuffer

SALT = 7
PATH = "msgs/00000000000000000001.seg"


def message(place: int, kind: int = MESSAGE) -> bytes:
    out = OutBuffer()
    body = b"body %d" % place if kind == MESSAGE else bytes(len(b"body %d" % place))
    encode(out, kind, SALT, place, 5, b"s", body, 0, 0, len(body))
    return out.take()


def a_segment(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    disk.makedirs("msgs")
    segment = Segment(1, PATH)
    segment.salt = SALT
    file = disk.open(PATH)
    file.append(encode_header(segment) + content)
    file.close()
    return disk


def copy(offset: int, content: bytes) -> bytes:
    return struct.pack("<IQ", SALT, offset) + content


def test_batches_that_follow_each_other_are_written_as_one() -> None:
    batches = [message(place) for place in range(9)]
    at = [HEADER_SIZE + sum(map(len, batches[:n])) for n in range(9)]
    disk = a_segment(bytes(sum(map(len, batches))))
    write_again(disk, PATH, [copy(at[n], batches[n]) for n in range(9)])
    assert disk.read(PATH)[HEADER_SIZE:] == b"".join(batches)
    assert disk.calls["pwrite"] == 1


def test_what_lies_between_batches_is_left_as_it_is() -> None:
    batches = [message(place) for place in range(6)]
    at = [HEADER_SIZE + sum(map(len, batches[:n])) for n in range(6)]
    disk = a_segment(b"?" * sum(map(len, batches)))
    write_again(disk, PATH, [copy(at[n], batches[n]) for n in (0, 1, 3, 4)])
    between = [batches[0], batches[1], b"?" * len(batches[2]), batches[3], batches[4]]
    assert disk.read(PATH)[HEADER_SIZE:] == b"".join([*between, b"?" * len(batches[5])])
    assert disk.calls["pwrite"] == 2


def test_a_message_that_was_erased_amid_others_stays_so() -> None:
    batches = [message(place) for place in range(5)]
    there = [*batches[:2], message(2, ERASED), b"?" * len(batches[3]), bytes(len(batches[4]))]
    at = [HEADER_SIZE + sum(map(len, batches[:n])) for n in range(5)]
    disk = a_segment(b"".join(there))
    write_again(disk, PATH, [copy(at[n], batches[n]) for n in range(5)])
    whole = [*batches[:2], message(2, ERASED), *batches[3:]]
    assert disk.read(PATH)[HEADER_SIZE:] == b"".join(whole)


def test_an_erased_message_stays_so_if_the_zeros_that_it_ends_with_take_no_space() -> None:
    batches = [message(0), message(1)]
    at = [HEADER_SIZE, HEADER_SIZE + len(batches[0])]
    disk = a_segment(batches[0] + message(1, ERASED))
    file = disk.open(PATH)
    assert file.data_end() < file.size()
    write_again(disk, PATH, [copy(at[n], batches[n]) for n in range(2)])
    assert disk.read(PATH)[HEADER_SIZE:] == batches[0] + message(1, ERASED)


def test_a_later_copy_of_the_same_bytes_counts() -> None:
    first, second = message(0), message(1)
    disk = a_segment(bytes(len(first)))
    write_again(disk, PATH, [copy(HEADER_SIZE, first), copy(HEADER_SIZE, second)])
    assert disk.read(PATH)[HEADER_SIZE:] == second


def test_copies_are_gathered_by_segment_and_by_stream_in_their_order() -> None:
    records = [
        Record(WRITE, 1, "a/S/msgs/1.seg", b"gone"),
        Record(REMOVE, 1, "a/S", b""),
        Record(KEEP, 2, "a/S/meta", b"{}"),
        Record(WRITE, 2, "a/S/msgs/1.seg", b"first"),
        Record(WRITE, 3, "a/T/msgs/1.seg", b"other"),
        Record(WRITE, 2, "a/S/msgs/1.seg", b"second"),
        Record(WRITE, 2, "a/S/msgs/2.seg", b"third"),
    ]
    data, previous = Head(SALT, 1).encode(), 0
    for index, record in enumerate(records, 1):
        entry, previous = encode_entry(index, 1, index - 1, previous, SALT, [record])
        data += entry
    assert len(data) > HEAD_SIZE
    found = replay([data, b""])
    assert [(one.kind, one.path) for one in found.changes] == [(REMOVE, "a/S"), (KEEP, "a/S/meta")]
    gathered = {
        (group[0].stream_created, group[0].path): [one.content for one in group]
        for group in found.writes
    }
    assert gathered == {
        (2, "a/S/msgs/1.seg"): [b"first", b"second"],
        (3, "a/T/msgs/1.seg"): [b"other"],
        (2, "a/S/msgs/2.seg"): [b"third"],
    }
