"""The record: what is written is read, damage is seen, and both builds write the same bytes."""

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.log import record as codec
from slipstream.log.columns import GONE, Column
from slipstream.log.subject_index import SubjectIndex
from slipstream.wire.buffer import OutBuffer
from tests.log.twins import load_twins

twin_index, twin_columns, twin = load_twins()

SALT = 0x1234ABCD
Parts = tuple[bytes, bytes, bytes, int]  # subject, header block, body, time
messages = st.tuples(
    st.binary(min_size=1, max_size=40),  # subject
    st.one_of(st.just(b""), st.binary(min_size=1, max_size=60)),  # header block
    st.binary(max_size=200),  # body
    st.integers(-(2**63), 2**63 - 1),  # time
)


def encode(
    module: Any, place: int, message: tuple[bytes, bytes, bytes, int], kind: int = 1
) -> bytes:
    subject, header, body, ts = message
    out = OutBuffer()
    data = b"<" + header + body + b">"
    middle = 1 + len(header)
    size = module.encode(out, kind, SALT, place, ts, subject, data, 1, middle, middle + len(body))
    taken = out.take()
    assert size == len(taken)
    return taken


@given(st.integers(0, 2**32 - 1), messages)
def test_what_is_written_is_read(place: int, message: tuple[bytes, bytes, bytes, int]) -> None:
    data = b"junk" + encode(codec, place, message)
    record = codec.Record()
    assert codec.decode(data, 4, SALT, 100, record) == len(data)
    assert (record.seq, record.kind) == (100 + place, codec.MESSAGE)
    assert (record.subject, record.header(), record.body(), record.ts) == message


@given(st.integers(0, 2**32 - 1), messages, st.integers(1, 8))
def test_twins_write_and_read_the_same_bytes(
    place: int, message: tuple[bytes, bytes, bytes, int], kind: int
) -> None:
    data = encode(codec, place, message, kind)
    assert data == encode(twin, place, message, kind)
    here, there = codec.Record(), twin.Record()
    for at in (-1, 0, 1, len(data)):
        end = codec.decode(data, at, SALT, 7, here)
        assert end == twin.decode(data, at, SALT, 7, there)
        assert codec.peek(data, at, 7, here) == twin.peek(data, at, 7, there)
        assert codec.length_at(data, at) == twin.length_at(data, at)
    assert codec.decode(data, 0, SALT, 7, here) == twin.decode(data, 0, SALT, 7, there)
    fields = ("seq", "ts", "subject", "header_start", "body_start", "end", "kind")
    assert [getattr(here, f) for f in fields] == [getattr(there, f) for f in fields]


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(1, 8))
def test_a_record_of_a_number_is_the_one_that_has_it_as_its_body(
    place: int, number: int, width: int
) -> None:
    number %= 256**width
    body = number.to_bytes(width, "little")
    whole = encode(codec, place, (b"", b"", body, 99), codec.FRONT)
    for module in (codec, twin):
        out = OutBuffer()
        size = module.encode_number(out, codec.FRONT, SALT, place, 99, number, width)
        assert (out.take(), size) == (whole, len(whole))


@pytest.mark.parametrize("width", [0, 9])
def test_a_number_of_no_or_of_too_many_bytes_is_refused(width: int) -> None:
    for module in (codec, twin):
        with pytest.raises(ValueError, match="one to eight bytes"):
            module.encode_number(OutBuffer(), codec.FRONT, SALT, 0, 0, 1, width)


@settings(max_examples=25)
@given(messages)
def test_a_flipped_bit_in_any_byte_is_detected(message: tuple[bytes, bytes, bytes, int]) -> None:
    data = bytearray(encode(codec, 5, message))
    record = codec.Record()
    for at in range(len(data)):
        for bit in (1, 16, 128):
            data[at] ^= bit
            assert codec.decode(bytes(data), 0, SALT, 0, record) == 0
            data[at] ^= bit
    assert codec.decode(bytes(data), 0, SALT, 0, record) == len(data)


@given(messages, st.data())
def test_a_torn_record_is_no_record(
    message: tuple[bytes, bytes, bytes, int], data: st.DataObject
) -> None:
    whole = encode(codec, 5, message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    record = codec.Record()
    assert codec.decode(whole[:cut], 0, SALT, 0, record) == 0
    assert codec.decode(whole[:cut] + bytes(len(whole) - cut + 64), 0, SALT, 0, record) in (
        0,
        # zeros at the end of a body that ends in zeros are the body
        len(whole) if not whole[cut:].strip(b"\0") else 0,
    )


def test_a_record_of_another_segment_does_not_check_out() -> None:
    data = encode(codec, 5, (b"a", b"", b"body", 1))
    assert codec.decode(data, 0, SALT + 1, 0, codec.Record()) == 0


@given(st.binary(max_size=300), messages, st.binary(max_size=100))
def test_the_next_whole_record_is_found_behind_damage(
    junk: bytes, message: tuple[bytes, bytes, bytes, int], behind: bytes
) -> None:
    data = junk + encode(codec, 5, message) + behind
    at = codec.resync(data, 0, SALT, 0)
    assert at == twin.resync(data, 0, SALT, 0)
    assert 0 <= at <= len(junk)
    assert codec.resync(data, len(junk) + 1, SALT, 0) == twin.resync(data, len(junk) + 1, SALT, 0)


@given(st.binary(max_size=400))
def test_garbage_is_refused_by_both_alike(data: bytes) -> None:
    here, there = codec.Record(), twin.Record()
    for at in range(-1, len(data) + 2, 7):
        assert codec.decode(data, at, SALT, 0, here) == twin.decode(data, at, SALT, 0, there)
        assert codec.peek(data, at, 0, here) == twin.peek(data, at, 0, there)
    assert codec.resync(data, 0, SALT, 0) == twin.resync(data, 0, SALT, 0)


@pytest.mark.parametrize("size", [0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 200, 1000])
def test_the_checksum_is_the_crc_of_zlib_at_every_length(size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size + 9))
    for start in range(9):
        record = encode(codec, 5, (b"s", b"", data[start : start + size], 99))
        assert int.from_bytes(record[:4], "little") == zlib.crc32(record[4:], SALT)
        moved = data[:start] + record
        assert codec.decode(moved, start, SALT, 0, codec.Record()) == len(moved)


@pytest.mark.parametrize(
    ("subject", "header", "error"),
    [(b"s" * 65_536, b"", ValueError), (b"s", b"h" * 65_536, ValueError)],
)
def test_what_does_not_fit_is_refused(
    subject: bytes, header: bytes, error: type[Exception]
) -> None:
    for module in (codec, twin):
        with pytest.raises(error):
            encode(module, 1, (subject, header, b"", 0))


def test_parts_outside_of_the_data_are_refused() -> None:
    for module in (codec, twin):
        for start, middle, end in ((0, 0, 6), (3, 2, 5), (0, 4, 3), (-1, 0, 2), (4, -(2**63), 5)):
            with pytest.raises((IndexError, OverflowError)):
                module.encode(OutBuffer(), 1, SALT, 0, 0, b"s", b"12345", start, middle, end)


def gathered(modules: tuple[Any, Any, Any], data: bytes) -> tuple[object, ...]:
    index, columns, module = modules
    subjects, ids, offsets = index.SubjectIndex(), columns.Column(), columns.Column()
    counts = module.RunCounts()
    end = module.read_run(data, 0, SALT, subjects, 50, ids, offsets, counts)
    return (
        end,
        [ids.get(i) for i in range(ids.size)],
        [offsets.get(i) for i in range(offsets.size)],
        [(subjects.subject(i), subjects.count(i)) for i in subjects.ids()],
        counts.messages,
        counts.with_header,
        counts.text_bytes,
        counts.first_ts,
        counts.last_ts,
    )


@given(st.lists(messages, max_size=12), st.integers(-1, 12), st.integers(0, 50))
def test_a_run_of_messages_is_gathered_up_to_what_does_not_belong(
    run: list[tuple[bytes, bytes, bytes, int]], harmed: int, byte: int
) -> None:
    parts = [bytearray(encode(codec, place, message)) for place, message in enumerate(run)]
    if 0 <= harmed < len(parts):
        parts[harmed][byte % len(parts[harmed])] ^= 0x40
    data = bytes(b"".join(parts))
    here = gathered((_HereIndex, _HereColumns, codec), data)
    assert here == gathered((twin_index, twin_columns, twin), data)
    whole = harmed if 0 <= harmed < len(parts) else len(parts)
    assert here[0] == sum(len(part) for part in parts[:whole])
    assert here[4] == whole


class _HereIndex:
    SubjectIndex = SubjectIndex


class _HereColumns:
    Column = Column


@given(st.lists(st.tuples(messages, st.booleans()), max_size=10))
def test_used_places_are_copied_byte_for_byte(
    run: list[tuple[tuple[bytes, bytes, bytes, int], bool]],
) -> None:
    data = b"header"
    results = []
    for columns, module in ((_HereColumns, codec), (twin_columns, twin)):
        ids, offsets = columns.Column(), columns.Column()
        data, kept = b"header", b""
        for place, (message, live) in enumerate(run):
            ids.append(place if live else GONE)
            offsets.append(len(data))
            part = encode(codec, place, message)
            data += part
            kept += part if live else b""
        out = OutBuffer()
        fresh = module.copy_used(data, ids, offsets, out, 32)
        assert out.size == len(kept)
        assert out.take() == kept
        results.append([fresh.get(i) for i in range(fresh.size)])
    assert results[0] == results[1]


@pytest.mark.parametrize("cut", [10, 60, 100])
def test_records_of_a_file_that_was_cut_are_not_left_out_of_a_copy(cut: int) -> None:
    record = encode(codec, 0, (b"s", b"", b"body".ljust(50), 1))
    data = (record + encode(codec, 1, (b"s", b"", b"body".ljust(50), 1)))[:-cut]
    for columns, module in ((_HereColumns, codec), (twin_columns, twin)):
        ids, offsets = columns.Column(), columns.Column()
        for place in range(2):
            ids.append(0)
            offsets.append(place * len(record))
        ids.append(GONE)
        offsets.append(2 * len(record))
        with pytest.raises(IndexError):
            module.copy_used(data, ids, offsets, OutBuffer(), 32)


@pytest.mark.parametrize("at", [2**63 - 1, 2**63 - 24, 2**62])
def test_no_record_begins_at_an_offset_far_behind_the_data(at: int) -> None:
    data = encode(codec, 0, (b"s", b"", b"body", 1))
    for index, columns, module in (
        (_HereIndex, _HereColumns, codec),
        (twin_index, twin_columns, twin),
    ):
        record = module.Record()
        assert module.peek(data, at, 0, record) == 0
        assert module.decode(data, at, SALT, 0, record) == 0
        assert module.length_at(data, at) == 0
        ids, offsets, counts = columns.Column(), columns.Column(), module.RunCounts()
        subjects = index.SubjectIndex()
        assert module.read_run(data, at, SALT, subjects, 1, ids, offsets, counts) == at


def test_a_deflated_body_too_short_to_say_its_size_counts_as_it_is() -> None:
    data = encode(codec, 0, (b"s", b"", b"abc", 1), codec.MESSAGE | codec.PACKED)
    data += encode(codec, 1, (b"s", b"", b"body", 1))
    here = gathered((_HereIndex, _HereColumns, codec), data)
    assert here == gathered((twin_index, twin_columns, twin), data)
    assert here[6] == len(b"sabc" + b"sbody")
