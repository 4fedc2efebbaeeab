"""Links that are compressed, as both ends agree."""

import asyncio
import json
import random
from pathlib import Path

import pytest

from slipstream import build
from slipstream.archive.s2 import S2Reader, S2Writer
from slipstream.engine.leaf.compression import (
    ACCEPT,
    AUTO,
    BEST,
    BETTER,
    FAST,
    LEVELS,
    OFF,
    UNCOMPRESSED,
    LinkCompression,
)
from slipstream.engine.leaf.link_bytes import LinkBytes
from slipstream.errors import CorruptionError
from slipstream.model.durations import MILLISECOND, SECOND
from tests.leaf.servers import NATS, PAIRS, SLIPSTREAM, linked, running, until
from tests.leaf.test_core import carries
from tests.leaf.test_hostile import Stranger, a_hub, is_well, stranger

compresses = pytest.mark.skipif(
    not build.is_compiled("slipstream.archive.s2_block"), reason="the plain build does not compress"
)
each_pair = pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
MODES = [OFF, ACCEPT, AUTO, FAST, BEST]


@each_pair
@pytest.mark.parametrize("hub", MODES)
@pytest.mark.parametrize("leaf", MODES)
async def test_both_ends_agree(kinds: tuple[str, str], hub: str, leaf: str, tmp_path: Path) -> None:
    choice = {"hub": f"compression: {hub}", "remote": f"compression: {leaf}"}
    async with linked(kinds, tmp_path, **choice) as pair:
        await carries(pair, [b"", b"x" * 100_000])
        for node, own, other in ((pair.hub, hub, leaf), (pair.leaf, leaf, hub)):
            agreed = LinkCompression(mode=own).agreed(other)
            [link] = await node.links()
            assert link["compression"] in (LEVELS if agreed == AUTO else [agreed])


@each_pair
async def test_bodies_of_all_sizes_cross_a_compressed_link(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    chance = random.Random(1)
    bodies = [chance.randbytes(size) for size in (1, 4096, 65_536, 900_000)]
    bodies += [bytes(size) for size in (100, 65_535, 1_000_000)]
    bodies += [b"ab%d" % number * 50 for number in range(500)]
    fast = f"compression {{ mode: {FAST} }}"
    async with linked(kinds, tmp_path, hub=fast, remote=fast) as pair:
        await carries(pair, bodies)


async def test_a_link_by_its_round_trip_has_a_level_of_its_own(tmp_path: Path) -> None:
    kinds = (SLIPSTREAM, NATS)
    slow = 'compression { mode: s2_auto, rtt_thresholds: ["0s", "1h"] }'
    async with linked(kinds, tmp_path, hub=slow) as pair:
        await carries(pair, [b"x" * 10_000])
        [link] = await pair.hub.links()
        assert link["compression"] == FAST


@compresses
def test_the_first_threshold_that_a_round_trip_does_not_pass_gives_the_level() -> None:
    auto = LinkCompression()
    times = [0, 10, 11, 50, 51, 100, 101, 10_000]
    found = [auto.level(time * MILLISECOND) for time in times]
    assert found == [UNCOMPRESSED, UNCOMPRESSED, FAST, FAST, BETTER, BETTER, BEST, BEST]
    packing = LinkBytes(auto, AUTO, 0)
    plain = packing.pack(bytes(10_000))
    packing.measured(SECOND)
    assert len(plain) > 10_000 > 10 * len(packing.pack(bytes(10_000)))


@pytest.mark.parametrize("other", ["", "not supported", "zip", OFF])
def test_a_mode_that_is_unknown_here_means_none(other: str) -> None:
    assert LinkCompression(mode=FAST).agreed(other) == OFF


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_comes_in_pieces_is_whole(size: int) -> None:
    writer, packing = S2Writer(), LinkBytes(LinkCompression(), FAST, 0)
    said = [b"PING\r\n", b"x" * 5000, b"PONG\r\n"]
    sent = b"".join(writer.write(one) for one in said)
    found = b""
    for at in range(0, len(sent), size):
        packing.feed(sent[at : at + size])
        while block := packing.next_block():
            found += block
    assert found == b"".join(said)


def test_what_came_in_is_decompressed_a_block_at_a_time() -> None:
    packing = LinkBytes(LinkCompression(), FAST, 0)
    writer = S2Writer()
    large = bytes(1024 * 1024)
    packing.feed(b"".join(writer.write(large) for _ in range(3)) + b"\0\1\0\0damage")
    assert [len(packing.next_block()) for _ in range(3)] == [len(large)] * 3
    with pytest.raises(CorruptionError):
        packing.next_block()


async def agree(peer: Stranger) -> S2Writer:
    """Say as one who dials that all that follows is packed; wait until the hub agrees."""
    peer.say(b"INFO " + json.dumps({"compression": FAST}).encode() + b"\r\n")
    reader = S2Reader()
    found = b""
    while not found.endswith(b"\r\n"):
        found += b"".join(reader.feed(await asyncio.wait_for(peer.reader.read(65_536), 30)))
    assert json.loads(found[5:])["compression"] == AUTO
    return S2Writer()


def login(name: str) -> bytes:
    """CONNECT as the hub's user."""
    said = {"name": name, "headers": True, "user": "u", "pass": "p"}
    return b"CONNECT " + json.dumps(said).encode() + b"\r\n"


@pytest.mark.parametrize("is_known", [False, True], ids=["stranger", "leaf"])
async def test_damage_on_the_way_ends_the_link_alone(tmp_path: Path, is_known: bool) -> None:
    hub = a_hub(tmp_path)
    async with running(hub), stranger(hub) as peer:
        writer = await agree(peer)
        if is_known:
            peer.say(writer.write(login("X")))
            await until(hub.links)
        packed = bytearray(writer.write(b"PING\r\n" * 1000))
        packed[-3] ^= 1
        peer.say(bytes(packed))
        await peer.rest()
        assert not await hub.links()
        await is_well(hub)


@compresses
async def test_a_few_bytes_that_stand_for_many_hold_nobody_up(tmp_path: Path) -> None:
    hub = a_hub(tmp_path)
    async with running(hub), stranger(hub) as peer:
        writer = await agree(peer)
        peer.say(writer.write(login("X")))
        await until(hub.links)
        million = writer.write(b"PING\r\n" * 174_000)
        assert len(million) < 100_000
        for _ in range(20):
            peer.say(million)
        for _ in range(5):
            await is_well(hub)


async def test_what_is_packed_may_follow_in_the_same_bytes(tmp_path: Path) -> None:
    hub = a_hub(tmp_path)
    async with running(hub), stranger(hub) as peer:
        info = b"INFO " + json.dumps({"compression": FAST}).encode() + b"\r\n"
        peer.say(info + S2Writer().write(login("X")))
        [link] = await until(hub.links)
        assert link["name"] == "X"


async def test_who_has_logged_in_does_not_begin_to_compress(tmp_path: Path) -> None:
    hub = a_hub(tmp_path)
    async with running(hub), stranger(hub) as peer:
        peer.say(login("X") + b"INFO " + json.dumps({"compression": FAST}).encode() + b"\r\n")
        peer.say(b"PING\r\n")
        await peer.until_said(b"PONG\r\n")
        [link] = await hub.links()
        assert link["compression"] == OFF
