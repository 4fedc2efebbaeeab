"""Peers on the port of leaf nodes that mean no good, or are no leaf nodes at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import slipstream
from tests.leaf.servers import SLIPSTREAM, Node, running, until

WELCOME = b'INFO {"info_on_connect":true,"max_payload":-9}\r\n'


class Stranger:
    """A raw connection to the port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def connect(self, **said: object) -> None:
        """Send CONNECT."""
        self.say(b"CONNECT " + json.dumps({"name": "X", "headers": True} | said).encode() + b"\r\n")

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        try:
            return await asyncio.wait_for(self.reader.read(), 30)
        except ConnectionError:
            return b""

    async def until_said(self, text: bytes) -> bytes:
        """What comes up to `text`."""
        return await asyncio.wait_for(self.reader.readuntil(text), 30)


@asynccontextmanager
async def stranger(node: Node) -> AsyncIterator[Stranger]:
    """Connect, and read INFO."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.leaf_port, limit=2**26)
    info = await reader.readline()
    assert info.startswith(b"INFO {")
    yield Stranger(reader, writer)
    writer.close()


def a_hub(directory: Path, more: str = "", limits: str = "") -> Node:
    """A Slipstream that asks leaf nodes for a password."""
    login = "authorization { user: u, password: p, timeout: 1 }"
    block = f'listen: "127.0.0.1:LEAF_PORT"\n{login}\n{more}'
    return Node(SLIPSTREAM, "HUB", directory, block, "hub", limits)


async def is_well(node: Node) -> None:
    """Clients are served as if nothing was."""
    async with await slipstream.connect(node.url) as client:
        subscription = await client.subscribe("well")
        await client.publish("well", b"yes")
        assert (await subscription.next(timeout=10)).data == b"yes"


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\xff" * 1000,
        b"LS+ >\r\n",
        b"PING\r\n",
        b"-ERR 'not a word of a stranger is in the log'\r\n" * 1000,
        b"LMSG well 1000000\r\n",
        b"CONNECT []\r\n",
        b'CONNECT {"user":"u","pass":"wrong"}\r\nLS+ >\r\n',
        b"CONNECT " + b"[" * 50_000 + b"\r\n",
        b"CONNECT " + b"x" * 100_000,
        b'CONNECT {"lang":"go","user":"u","pass":"p"}\r\n',
        b'CONNECT {"gateway":"G","user":"u","pass":"p"}\r\n',
    ],
)
async def test_a_stranger_is_sent_away_and_learns_nothing(tmp_path: Path, said: bytes) -> None:
    node = a_hub(tmp_path)
    async with running(node), await slipstream.connect(node.url) as client:
        await client.subscribe("secret.subject")
        await client.flush()
        async with stranger(node) as peer:
            peer.say(said)
            assert b"secret" not in await peer.rest()
        await is_well(node)


async def test_a_name_cannot_forge_lines_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    node = a_hub(tmp_path)
    async with running(node):
        async with stranger(node) as peer:
            peer.connect(user="u", name="x\nforged: all is well\x1b[2J")
            assert b"Authorization Violation" in await peer.rest()

        async def said() -> bool:
            return "Leafnode connection closed" in caplog.text

        await until(said)
        assert all("\n" not in r.getMessage() for r in caplog.records if "forged" in r.getMessage())
        assert "\x1b" not in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        b'{"user":"u","pass":"p","deny_pub":["a..b","",">.x","\\ud800"]}',
        b'{"user":"u","pass":"p","name":"\\ud800","cluster":"\\u0000"}',
        b'{"user":"u","pass":"p","headers":"yes"}',
        b'{"user":"u","pass":"p","protocol":99999999999999999999999}',
    ],
)
async def test_odd_words_in_connect_harm_nobody(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        peer.say(b"CONNECT " + said + b"\r\nPING\r\nLS+\r\n")
        await peer.rest()
        await is_well(node)
        assert "Traceback" not in caplog.text


async def test_a_crowd_on_the_port_ends_at_the_limit(tmp_path: Path) -> None:
    node = a_hub(tmp_path, limits="max_connections: 2")
    async with running(node), stranger(node), stranger(node), stranger(node) as third:
        assert b"maximum connections exceeded" in await third.rest()
        await is_well(node)


async def test_who_says_nothing_is_sent_away(tmp_path: Path) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        assert b"Authentication Timeout" in await peer.rest()


async def test_a_client_on_the_port_is_told_so(tmp_path: Path) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        peer.connect(lang="python", user="u")
        assert b"attempted to connect to leaf node port" in await peer.rest()


@pytest.mark.parametrize(
    "said",
    [
        b"PUB well 1\r\nx\r\n",
        b"LMSG well 9999999\r\n",
        b"LMSG well x y z\r\n",
        b"LS+ a b\r\n",
        b"LS- a b c\r\n",
        b"CONNECT {}\r\n",
        b"LMSG well + r" + b" q" * 50_000,
    ],
)
async def test_a_leaf_that_breaks_the_protocol_is_cut_off(tmp_path: Path, said: bytes) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        await peer.until_said(b"LS+ $LDS.")
        peer.say(said)
        await peer.rest()
        await is_well(node)
        assert not await node.links()


async def test_subjects_that_are_invalid_are_refused(tmp_path: Path) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        peer.say(b"LS+ a..b\r\nLS+ a.>.b\r\nLS+ ok q 99999999999999999999\r\nLS+ ok q -1\r\n")
        await peer.until_said(b"-ERR 'Invalid Subscription'\r\n-ERR 'Invalid Subscription'\r\n")
        peer.say(b"LMSG a..b 0\r\n\r\nLMSG * 0\r\n\r\nPING\r\n")
        await peer.until_said(b"PONG\r\n")
        await is_well(node)


async def test_a_flood_of_interest_ends_at_the_limit(tmp_path: Path) -> None:
    node = a_hub(tmp_path, limits="max_subscriptions: 100")
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        peer.say(b"".join(b"LS+ s.%d\r\n" % number for number in range(1_000)))
        await peer.until_said(b"maximum subscriptions exceeded")
        [link] = await node.links()
        assert link["subscriptions"] <= 100
        await is_well(node)


async def test_a_leaf_that_never_reads_is_cut_off(tmp_path: Path) -> None:
    node = a_hub(tmp_path, limits="max_pending: 1MB\nmax_payload: 256KB")
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        peer.say(b"LS+ flood\r\n")
        await until(node.links)
        async with await slipstream.connect(node.url) as client:

            async def gone() -> bool:
                for _ in range(20):
                    await client.publish("flood", b"x" * 200_000)
                await client.flush()
                return not await node.links()

            await until(gone, "the leaf is not cut off")
        await is_well(node)


async def test_half_a_message_holds_nobody_up(tmp_path: Path) -> None:
    node = a_hub(tmp_path, limits='ping_interval: "1s"\nping_max: 1')
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        peer.say(b"LMSG well 100000\r\nhalf")
        await until(node.links)
        await is_well(node)

        async def gone() -> bool:
            return not await node.links()

        await until(gone, "the leaf that fell silent is still there")


async def test_a_loop_subject_that_comes_back_ends_the_link(tmp_path: Path) -> None:
    node = a_hub(tmp_path)
    async with running(node), stranger(node) as peer:
        peer.connect(user="u", **{"pass": "p"})
        await peer.until_said(b"LS+ $LDS.")
        own = (await peer.until_said(b"\r\n")).strip()
        peer.say(b"LS+ $LDS." + own + b"\r\n")
        expected = b'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
        assert expected in await peer.rest()


async def test_a_hub_that_is_invalid_is_left_alone(tmp_path: Path) -> None:
    lines = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff" * 200_000,
        b'INFO {"server_id":"N","port":1}\r\n',
        b"INFO " + b"[" * 10_000 + b"\r\n",
        b'INFO {"info_on_connect":true,"max_payload":99999999999999999999999}\r\n',
        WELCOME + b'INFO {"connect_info":true,"export":3}\r\n',
        WELCOME + b'INFO {"connect_info":true,"import":{"allow":[""]}}\r\nLS+\r\n',
        b"LS+ x\r\n",
    ]
    seen = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        writer.write(lines[seen % len(lines)])
        seen += 1
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    impostor = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = impostor.sockets[0].getsockname()[1]
    remote = f'remotes: [ {{ url: "nats-leaf://127.0.0.1:{port}" }} ]'
    node = Node(SLIPSTREAM, "EDGE", tmp_path, remote, "edge")
    async with impostor, running(node):

        async def all_tried() -> bool:
            return seen >= 2 * len(lines)

        await until(all_tried)
        assert not await node.links()
        await is_well(node)
