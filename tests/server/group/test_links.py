"""Strangers learn nothing at the port of a group, and disturb nobody."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from slipstream.group import Message, encode
from slipstream.group.messages import AskSeal, Fetched, Mark, make_entry
from slipstream.server.group import LinkSettings, make_contexts
from slipstream.server.group.frames import FrameWriter
from slipstream.server.group.handshake import Greeting, Handshake, Standing
from slipstream.server.group.link import ENTRIES_QUEUED_MAX, OTHERS_QUEUED_MAX, Link
from slipstream.server.group.links import STRANGERS_MAX, Links
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions, TlsOptions
from tests.fix_certificates import Authority, make_authority
from tests.server.group.hosts import LOCAL, Group, Lines
from tests.server.group.waiting import LIMIT, until

SECRET = b"of the group"


def hello(secret: bytes = SECRET, name: str = "n0", cluster: str = "test") -> Handshake:
    mine = Greeting(cluster, name, Standing.KEPT, ("n1", "n2", "n3"), b"n" * 32)
    return Handshake(secret, mine, dials=True)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as found:
        await found.append(b"1")
        yield found


async def answer(port: int, *parts: bytes) -> bytes:
    """All that somebody hears who says this, until the other end closes the connection."""
    reader, writer = await asyncio.open_connection(LOCAL, port)
    try:
        for part in parts:
            writer.write(part)
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                return await reader.read()
        return b""
    finally:
        writer.close()


STRANGERS = {
    "wrong secret": hello(b"of another group").take(),
    "garbage": bytes(range(256)) * 64,
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "half a greeting": hello().take()[:50],
    "huge length": b"SLGP\x02" + struct.pack("<H", 65535) + bytes(1000),
    "silence": b"",
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
async def test_a_stranger_hears_nothing_but_the_end(group: Group, said: bytes) -> None:
    before = {name: host.linked_names for name, host in group.hosts.items()}
    assert await answer(group.ports["n2"], said) == b""
    assert group.logs["n2"].has("is no server of this group")
    await group.append(b"2")
    assert {name: host.linked_names for name, host in group.hosts.items()} == before


async def test_a_greeting_that_was_recorded_leads_nowhere(group: Group) -> None:
    recorded = hello(name="n1").take()
    heard = await answer(group.ports["n2"], recorded)
    assert b"test" in heard  # a greeting, for who has recorded one, and then the end
    await group.append(b"2")


async def test_strangers_do_not_take_the_place_of_servers(group: Group) -> None:
    port = group.ports["n3"]
    silent = [await asyncio.open_connection(LOCAL, port) for _ in range(3 * STRANGERS_MAX)]
    host = group.hosts["n3"]
    await until(lambda: len(host._links._unproved) <= STRANGERS_MAX, "most of them have ended")
    leader = await group.leader()
    restarted = "n1" if leader.name != "n1" else "n2"
    await group.stop(restarted)
    await group.start(restarted)
    await until(lambda: len(group.hosts[restarted].linked_names) == 2, "it is linked")
    await group.append(b"2")
    for _, writer in silent:
        writer.close()


async def linked(
    port: int, name: str, cluster: str = "test"
) -> tuple[asyncio.StreamWriter, FrameWriter]:
    """A connection of somebody who knows the secret."""
    reader, writer = await asyncio.open_connection(LOCAL, port)
    handshake = hello(name=name, cluster=cluster)
    writer.write(handshake.take())
    while not handshake.is_done:
        handshake.feed(await reader.read(1000))
    writer.write(handshake.take())
    return writer, FrameWriter(handshake.keys()[0])


@pytest.mark.parametrize(
    ("name", "cluster", "why"),
    [
        ("n0", "test", "the group has the servers n1, n2, n3"),
        ("n1", "other", 'its cluster is "other", this one is "test"'),
    ],
)
async def test_who_knows_the_secret_and_is_no_member_is_not_linked(
    group: Group, name: str, cluster: str, why: str
) -> None:
    writer, _ = await linked(group.ports["n2"], name, cluster)
    await until(lambda: group.logs["n2"].has(why), why)
    writer.close()
    await group.append(b"2")


async def test_who_is_not_linked_again_and_again_is_named_once(group: Group) -> None:
    for _ in range(5):
        writer, _ = await linked(group.ports["n2"], "n0")
        writer.close()
    log = group.logs["n2"]
    for cluster in ("other", "one more"):  # ... until the reason is another one
        writer, _ = await linked(group.ports["n2"], "n0", cluster)
        await until(lambda one=cluster: log.has(f'its cluster is "{one}"'), "it has a line")
        writer.close()
    assert len([line for line in log.lines if "which is not linked" in line]) == 3


async def test_a_member_that_breaks_the_protocol_is_dialled_anew(group: Group) -> None:
    for data in (b"\xff" * 40, b"\0" * 20):
        writer, _ = await linked(group.ports["n3"], "n1")  # in the place of n1's own connection
        writer.write(data)
        await until(
            lambda: (
                "n1" in group.hosts["n3"].linked_names and "n3" in group.hosts["n1"].linked_names
            ),
            "they are linked again",
        )
        writer.close()
    await group.append(b"2")


@pytest.mark.parametrize("payload", [b"no message", b"\x93\xa1\xff"], ids=["kind", "utf-8"])
async def test_a_message_that_cannot_be_read_ends_the_connection(
    group: Group, payload: bytes
) -> None:
    writer, frames = await linked(group.ports["n3"], "n1")
    writer.write(frames.frame(payload))
    await until(lambda: group.logs["n3"].has("a message cannot be read"), "it is refused")
    await group.append(b"2")
    writer.close()


async def test_a_server_with_another_secret_is_told_apart(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.secrets["n3"] = b"mistyped"
    async with group:
        await until(
            lambda: group.logs["n3"].has("give all servers of the group the same user"),
            "who is dialled says so",
        )
        assert not group.hosts["n3"].linked_names
        await until(
            lambda: group.logs["n1"].has("leads to no server of this group (attempt 1)"),
            "who dials says so",
        )


async def test_with_tls_only_certificates_of_the_authority_are_let_in(
    tmp_path: Path, authority: Authority, server_files: tuple[str, str]
) -> None:
    other = make_authority(tmp_path, "Another CA")
    certificate, key = server_files
    contexts = make_contexts(
        TlsOptions(cert_file=certificate, key_file=key, ca_file=authority.ca_file)
    )
    async with Group(tmp_path, contexts) as group:
        await group.append(b"1")
        for files in ((), other.issue("n1")):
            context = authority.client_context(*files)
            with pytest.raises(OSError):  # noqa: PT012 - TLS 1.3 refuses when it is read
                reader, writer = await asyncio.open_connection(
                    "localhost", group.ports["n2"], ssl=context
                )
                writer.write(hello(b"").take())
                if not await reader.read():
                    raise ConnectionResetError
        assert group.logs["n2"].has("is no server of this group: TLS")
        await group.append(b"2")


class Socket(asyncio.Transport):
    """A transport that takes nothing more after some bytes."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.takes = takes
        self.protocol: Link | None = None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        self.takes -= len(data)
        if self.takes <= 0 and self.protocol is not None:
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


class Owner:
    def proved(self, link: Link, greeting: Greeting) -> bool:
        return True

    def received(self, link: Link, messages: list[Message]) -> None:
        pass

    def lost(self, link: Link, why: str) -> None:
        pass


async def test_to_a_server_that_does_not_read_the_oldest_entries_are_dropped() -> None:
    loop = asyncio.get_running_loop()
    other = Handshake(SECRET, Greeting("c", "n2", Standing.EMPTY, (), b"n" * 32), dials=False)
    link = Link(loop, Owner(), hello, 2.0, None, "n2")
    socket = Socket(2000)
    socket.protocol = link
    link.connection_made(socket)
    other.feed(socket.written[-1])
    link.data_received(other.take())
    socket.written.clear()
    body = bytes(1024 * 1024)
    count = ENTRIES_QUEUED_MAX // len(body) + 10
    after = Mark(0, 0, 0)
    for number in range(count):
        entry = make_entry(1, after, body)
        for message in (Fetched(number, after, (entry,)), AskSeal(number)):
            link.send(message, encode(message))
        link.flush()
    assert 0 < link.dropped < 20
    assert len(socket.written) < 3
    for number in range(2 * OTHERS_QUEUED_MAX):
        link.send(AskSeal(number), encode(AskSeal(number)))
    assert link.dropped > OTHERS_QUEUED_MAX
    socket.takes = 1 << 40
    socket.written.clear()
    link.resume_writing()
    sizes = [len(part) for part in socket.written]
    assert sizes[0] > sizes[1] == sizes[-1]  # what has no entries goes first, with one that has
    assert sum(sizes) < ENTRIES_QUEUED_MAX + OTHERS_QUEUED_MAX * 100
    link.connection_lost(None)


class Alone:
    """The owner of links that lead nowhere."""

    def greeting(self, nonce: bytes) -> Greeting:
        return Greeting("c", "n1", Standing.EMPTY, (), nonce)

    def may_link(self, greeting: Greeting) -> str:
        return ""

    def linked(self, greeting: Greeting) -> None:
        pass

    def unlinked(self, name: str) -> None:
        pass

    def received(self, sender: str, messages: list[Message]) -> None:
        pass


async def test_links_stop_also_at_the_moment_at_which_a_connection_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    dialled, connected = asyncio.Event(), loop.create_future()

    async def connect(make: Callable[[], Link], host: str, port: int) -> tuple[None, Link]:
        dialled.set()
        await connected
        return None, make()

    monkeypatch.setattr(loop, "create_connection", connect)
    settings = LinkSettings(host=LOCAL, routes=[(LOCAL, 1)], secret=SECRET)
    links = Links("n1", settings, Alone(), Logger(Lines(), LoggingOptions()))
    await links.start()
    await dialled.wait()
    connected.set_result(None)
    async with asyncio.timeout(LIMIT):
        await links.stop()


async def test_of_strangers_that_come_at_once_few_are_kept() -> None:
    log = Lines()
    links = Links("n1", LinkSettings(secret=SECRET), Alone(), Logger(log, LoggingOptions()))
    made = [links._accept() for _ in range(3 * STRANGERS_MAX)]
    for link in made:  # none hears of its end before all are there
        link.connection_made(Socket(0))
    assert set(links._unproved) == set(made[-STRANGERS_MAX:])
    assert log.has("too many connections")
    for link in made:
        link.connection_lost(None)
    assert not links._unproved
