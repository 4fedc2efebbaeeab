"""What is compressed comes back, on both builds, and nothing damaged comes back at all."""

import random
import tracemalloc
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.archive import s2_block
from slipstream.archive.s2 import S2Reader, S2Writer
from slipstream.errors import CorruptionError
from tests.plain_twin import plain_twin

PLAIN = plain_twin("slipstream.archive.s2_block")
BUILDS = [s2_block, PLAIN]
IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"


def read(data: bytes, step: int = 0) -> bytes:
    """All that is in a stream of frames that comes in pieces of `step` bytes."""
    reader = S2Reader()
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    found = b"".join(block for piece in pieces for block in reader.feed(piece))
    reader.finish()
    return found


texts = st.one_of(
    st.binary(max_size=3000),
    st.lists(st.sampled_from([b"order ", b"customer", b"{", b"1", b"0" * 70]), max_size=400).map(
        b"".join
    ),
)


@given(texts, st.integers(1, 5000))
def test_what_is_written_is_read(data: bytes, step: int) -> None:
    writer = S2Writer()
    packed = writer.write(data) + writer.write(data[::-1])
    assert read(packed, step) == data + data[::-1]


@given(texts)
def test_both_builds_decompress_alike(data: bytes) -> None:
    packed = s2_block.encode_block(data)
    if packed:
        assert len(packed) < len(data)
        for build in BUILDS:
            assert build.decode_block(b"x" + packed + b"y", 1, len(packed) + 1, 1 << 20) == data


def test_the_checksum_is_the_one_that_others_have() -> None:
    masked = ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    chunk = S2Writer().write(b"123456789")[len(IDENTIFIER) :]
    assert chunk == b"\x01\x0d\x00\x00" + masked.to_bytes(4, "little") + b"123456789"


def test_large_blocks_repeat_what_lies_far_back() -> None:
    noise = random.Random(1).randbytes(300_000)
    data = noise + bytes(200_000) + noise + b"end"
    packed = S2Writer().write(data)
    assert read(packed) == data
    if hasattr(s2_block, "__file__") and not s2_block.__file__.endswith(".py"):
        assert len(packed) < len(noise) + 1000


@given(st.binary(max_size=60))
def test_both_builds_make_the_same_of_any_block(block: bytes) -> None:
    found = []
    for build in BUILDS:
        try:
            found.append(build.decode_block(block, 0, len(block), 5000))
        except CorruptionError:
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    ("block", "whole"),
    [
        ("04 0c61626364", b"abcd"),
        ("0c 0c61626364 1104", b"abcd" * 3),  # a copy that overlaps with what it makes
        ("0c 0c61626364 1e0400", b"abcd" * 3),
        ("0c 0c61626364 1f04000000", b"abcd" * 3),
        ("14 0c61626364 0104 1100", None),  # shorter than it says
        ("0c 0c61626364 0104 1100", None),  # longer than it says
        ("10 0c61626364 0104 0100 0100", b"abcd" * 4),
        ("28 0c61626364 0104 150018", b"abcd" * 10),
        ("9003 0c61626364 0104 19008400", b"abcd" * 100),
        ("f0a204 0c61626364 0104 1d00641100", b"abcd" * 17_500),
        ("08 0c61626364 0100", None),  # nothing to repeat yet
        ("08 0c61626364 0105", None),  # from before the beginning
        ("04 0c616263", None),
        ("04", None),
        ("", None),
        ("ffffffff7f 00", None),
    ],
)
def test_repeats_take_the_last_offset(build: ModuleType, block: str, whole: bytes | None) -> None:
    data = bytes.fromhex(block)
    if whole is None:
        with pytest.raises(CorruptionError):
            build.decode_block(data, 0, len(data), 1 << 20)
    else:
        assert build.decode_block(data, 0, len(data), 1 << 20) == whole


@pytest.mark.parametrize("build", BUILDS)
def test_a_block_lies_inside_of_its_data_and_has_a_bound(build: ModuleType) -> None:
    data = b"\x04\x0cabcd"
    for start, end in ((-1, 3), (2, 1), (0, 7)):
        with pytest.raises(IndexError):
            build.decode_block(data, start, end, 100)
    with pytest.raises(CorruptionError):
        build.decode_block(data, 0, 6, 3)
    with pytest.raises(ValueError, match="16 MB"):
        build.encode_block(bytes(1 << 24))


def test_every_damaged_byte_is_noticed() -> None:
    data = b"".join(b"key %d has value %d, " % (i % 7, i) for i in range(60))
    packed = S2Writer().write(data)
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0x21
        try:
            assert read(bytes(damaged)) == data, at
        except CorruptionError:
            pass
    for end in range(len(packed)):
        if end != len(IDENTIFIER):
            with pytest.raises(CorruptionError):
                read(packed[:end])


def test_what_may_be_passed_over_is() -> None:
    packed = IDENTIFIER + b"\x99\x03\x00\x00abc" + b"\xfe\x01\x00\x00x" + S2Writer().write(b"data")
    assert read(packed) == b"data"
    with pytest.raises(CorruptionError, match="unknown type"):
        read(IDENTIFIER + b"\x02\x01\x00\x00x")
    with pytest.raises(CorruptionError, match="larger"):
        read(IDENTIFIER + b"\x00\xff\xff\xff")


def most_allocated(reader: S2Reader, pieces: list[bytes]) -> int:
    """The most bytes that reading so many pieces, which complete no chunk, takes at a time."""
    tracemalloc.start()
    try:
        for piece in pieces:
            assert list(reader.feed(piece)) == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_chunk_that_comes_in_small_pieces_is_not_copied_for_each() -> None:
    reader = S2Reader()
    for piece in (IDENTIFIER + b"\x01\x00\x00\x40", bytes(3_000_000), b"x"):
        assert list(reader.feed(piece)) == []
    assert most_allocated(reader, [b"x"] * 10) < 100_000


def test_what_may_be_passed_over_is_not_kept() -> None:
    reader = S2Reader()
    assert (
        most_allocated(reader, [IDENTIFIER + b"\x80\xff\xff\xff", *[bytes(1 << 20)] * 15]) < 100_000
    )
    with pytest.raises(CorruptionError, match="cut off"):
        reader.finish()
    packed = bytes((1 << 20) - 1) + S2Writer().write(b"data")
    assert list(reader.feed(packed)) == [b"data"]
    reader.finish()


def test_no_name_is_as_long_as_a_chunk_can_be() -> None:
    with pytest.raises(CorruptionError, match="not its name"):
        list(S2Reader().feed(b"\xff\xff\xff\xff"))
