"""Two servers prove to each other that they share a secret, and what they say is checked."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import ProtocolError
from slipstream.server.group.frames import FrameReader, FrameWriter
from slipstream.server.group.handshake import Greeting, Handshake, Standing, StrangerError

SECRET = b"a secret of the group"


def greeting(name: str, nonce: bytes = b"n" * 32) -> Greeting:
    return Greeting("c", name, Standing.EMPTY, (), nonce)


def sides(theirs: bytes = SECRET) -> tuple[Handshake, Handshake]:
    """Who dials, and who accepts."""
    first = Handshake(SECRET, greeting("n1", b"1" * 32), dials=True)
    return first, Handshake(theirs, greeting("n2", b"2" * 32), dials=False)


def test_both_sides_know_each_other_after_three_messages() -> None:
    dialler, other = sides()
    assert not other.take()
    other.feed(dialler.take())
    dialler.feed(other.take())
    other.feed(dialler.take())
    assert dialler.is_done
    assert other.is_done
    assert (dialler.peer, other.peer) == (greeting("n2", b"2" * 32), greeting("n1", b"1" * 32))
    assert dialler.keys() == other.keys()[::-1]


def test_bytes_may_come_one_by_one_and_frames_right_behind() -> None:
    dialler, other = sides()
    for byte in dialler.take():
        other.feed(bytes([byte]))
    dialler.feed(other.take())
    other.feed(dialler.take() + b"the first frame")
    assert other.rest == b"the first frame"


def test_a_wrong_secret_gets_no_byte_of_an_answer() -> None:
    dialler, other = sides(b"another one")
    with pytest.raises(StrangerError, match="same user and password"):
        other.feed(dialler.take())
    assert other.take() == b""


def test_the_secret_is_not_on_the_wire() -> None:
    dialler, other = sides()
    said = [dialler.take()]
    other.feed(said[0])
    said.append(other.take())
    dialler.feed(said[1])
    assert not any(SECRET in part for part in (*said, dialler.take()))


def test_what_was_recorded_is_no_proof() -> None:
    dialler, other = sides()
    hello = dialler.take()
    other.feed(hello)
    dialler.feed(other.take())
    proof = dialler.take()
    later = Handshake(SECRET, greeting("n2", b"3" * 32), dials=False)
    later.feed(hello)
    assert later.take()
    with pytest.raises(StrangerError):
        later.feed(proof)


def test_what_was_said_is_no_proof_when_it_is_sent_back() -> None:
    dialler, _ = sides()
    hello = dialler.take()
    with pytest.raises(StrangerError):
        dialler.feed(hello)


@pytest.mark.parametrize("position", [0, 4, 5, 7, 20, -1])
def test_what_was_changed_on_the_way_is_refused(position: int) -> None:
    dialler, other = sides()
    hello = bytearray(dialler.take())
    hello[position] ^= 1
    with pytest.raises(StrangerError):
        other.feed(bytes(hello) + bytes(300))
    assert other.take() == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"S", b"SLGP\x02\xff\xff", b"INFO {}\r\n"])
def test_a_stranger_is_known_by_its_first_bytes(data: bytes) -> None:
    _, other = sides()
    if data == b"S":
        other.feed(data)  # it may become a greeting
    else:
        with pytest.raises(StrangerError, match="does not speak the protocol"):
            other.feed(data)
    assert other.take() == b""


@pytest.mark.parametrize("wrong", [b"\xff\xff", b"\xc0\xc0"])
def test_a_greeting_that_cannot_be_read_is_refused_though_its_mac_is_right(wrong: bytes) -> None:
    dialler, other = Handshake(SECRET, greeting("n1"), dials=False), sides()[1]
    body = msgspec.msgpack.encode(greeting("n1")).replace(b"\xa2n1", b"\xa2" + wrong)
    dialler._say(b"hello", body)
    with pytest.raises(StrangerError, match="its greeting cannot be read"):
        other.feed(dialler.take())


def test_versions_that_do_not_go_together_say_so() -> None:
    _, other = sides()
    with pytest.raises(StrangerError, match="version 1 of the protocol, this server version 2"):
        other.feed(b"SLGP\x01\x00\x00")


@given(st.lists(st.binary(max_size=300), max_size=10), st.integers(1, 50))
def test_frames_are_found_however_they_are_cut(payloads: list[bytes], size: int) -> None:
    writer, reader = FrameWriter(b"k" * 32), FrameReader(b"k" * 32, 300)
    data = b"".join(writer.frame(payload) for payload in payloads)
    found: list[bytes] = []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert found == payloads


def test_a_frame_that_was_changed_left_out_or_sent_again_is_an_error() -> None:
    writer = FrameWriter(b"k" * 32)
    first, second = writer.frame(b"first"), writer.frame(b"second")
    changed = first[:-1] + b"T"
    for data in (changed, second, first + first):
        with pytest.raises(ProtocolError, match="checksum"):
            FrameReader(b"k" * 32, 100).feed(data)
    with pytest.raises(ProtocolError, match="checksum"):
        FrameReader(b"o" * 32, 100).feed(first)


def test_a_huge_length_is_refused_before_anything_of_it_is_kept() -> None:
    with pytest.raises(ProtocolError, match="4294967295 bytes, more than 100"):
        FrameReader(b"k" * 32, 100).feed(b"\xff" * 20)
