"""What one client may cost, and that those who exceed it harm nobody else."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from slipstream.model.durations import SECOND
from slipstream.server import Server, passwords
from slipstream.server.options import AuthorizationOptions, LimitsOptions, UserOptions
from tests.server.hand_timers import HandTimers
from tests.server.plain_client import PlainClient, plain_client

MIB = 1024 * 1024


class Starter:
    """Starts servers that end with the test."""

    def __init__(self, stack: ExitStack, store_dir: Path) -> None:
        self._stack = stack
        self._store_dir = store_dir

    def __call__(self, others: dict[str, Any] | None = None, **limits: Any) -> Server:
        options = {"limits": LimitsOptions(**limits), **(others or {})}
        return self._stack.enter_context(Server(store_dir=str(self._store_dir), **options))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with ExitStack() as stack:
        yield Starter(stack, tmp_path)


def engine_of(server: Server) -> Any:
    assert server.runtime is not None
    return server.runtime.engine


def connect(client: PlainClient, options: str = '{"verbose":false}') -> list[str]:
    client.send(f"CONNECT {options}\r\n")
    return client.ping()


# -- connections ---------------------------------------------------------------------------------


def test_clients_leave_the_store_some_of_the_descriptors(
    start: Starter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, but not of each who is cut off."""
    server = start()
    assert server.runtime is not None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert server.runtime.room.most == soft - soft // 4
    monkeypatch.setattr(server.runtime.room, "most", 2)
    with plain_client(server.port) as first, plain_client(server.port) as second:
        first.info()
        second.info()
        for _ in range(5):
            with plain_client(server.port) as third:
                assert third.is_closed()
                assert third.inbox == b""
        assert connect(first) == []
    assert caplog.text.count("2 clients are connected already, and there is one more") == 1
    while server.client_count:  # until the server knows that they have gone
        pass
    with plain_client(server.port) as next_one:
        assert next_one.info()


def test_max_connections_turns_the_next_one_away_after_info(start: Starter) -> None:
    server = start(max_connections=1)
    with plain_client(server.port) as first:
        first.info()
        with plain_client(server.port) as second:
            second.info()
            assert second.line() == "-ERR 'maximum connections exceeded'"
            assert second.is_closed()
        assert first.ping() == []


@pytest.mark.parametrize(("most", "let_in"), [(0, False), (-1, True)])
def test_0_connections_are_none_and_minus_1_all(start: Starter, most: int, let_in: bool) -> None:
    with plain_client(start(max_connections=most).port) as client:
        client.info()
        assert (client.ping() == []) is let_in


def test_who_does_not_authenticate_in_time_is_told_so(start: Starter) -> None:
    auth = AuthorizationOptions(user="ann", password="a", timeout=SECOND // 10)
    with plain_client(start({"authorization": auth}).port) as client:
        assert client.info()["auth_required"]
        assert client.line() == "-ERR 'Authentication Timeout'"
        assert client.is_closed()


@pytest.mark.parametrize(("password", "answer"), [("right", []), ("wrong", None)])
def test_a_bcrypt_password_is_checked_and_what_waited_goes_on(
    start: Starter, password: str, answer: list[str] | None
) -> None:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    users = [UserOptions(user="ann", password=hashed)]
    server = start({"authorization": AuthorizationOptions(users=users)})
    with plain_client(server.port) as client:
        client.info()
        found = connect(client, f'{{"verbose":false,"user":"ann","pass":"{password}"}}')
    assert found == (["-ERR 'Authorization Violation'"] if answer is None else answer)


def test_nothing_is_read_while_a_password_is_checked(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, decided = threading.Event(), threading.Event()

    def matches(kept: str, given: str) -> bool:
        begun.set()
        return decided.wait(60)

    monkeypatch.setattr(passwords, "_matches", matches)
    users = [UserOptions(user="ann", password=bcrypt.hashpw(b"a", bcrypt.gensalt(4)).decode())]
    server = start({"authorization": AuthorizationOptions(users=users)})
    assert server.runtime is not None
    with plain_client(server.port) as client:
        client.info()
        client.send('CONNECT {"verbose":false,"user":"ann","pass":"a"}\r\n')
        assert begun.wait(60)
        # The pool may begin before the turn that reads CONNECT has ended.
        turn_is_over = threading.Event()
        server.runtime.loop.call_soon_threadsafe(turn_is_over.set)
        assert turn_is_over.wait(60)
        (connection,) = server.runtime.connections
        assert not connection._transport.is_reading()
        sender = threading.Thread(target=client.send, args=(b"PUB a 1\r\nx\r\n" * MIB,))
        sender.start()
        assert connection.session is not None
        assert connection.session.in_msgs == 0
        decided.set()
        sender.join(60)
        assert client.ping() == []
        assert connection.session.in_msgs == MIB


def test_a_client_that_does_not_answer_pings_is_stale(start: Starter) -> None:
    server = start(ping_interval=SECOND // 10, ping_max=2)
    with plain_client(server.port, answers_pings=False) as client:
        client.info()
        client.send('CONNECT {"verbose":false}\r\n')
        assert client.lines_until("") == ["PING", "PING", "-ERR 'Stale Connection'"]
    assert engine_of(server).stale_connections == 1


def test_a_client_that_answers_stays(start: Starter) -> None:
    # As many as a busy machine may need; `tests/engine/test_sessions.py` counts them.
    server = start(ping_interval=SECOND // 10, ping_max=1000)
    with plain_client(server.port, answers_pings=False) as client:
        client.info()
        client.send('CONNECT {"verbose":false}\r\n')
        for _ in range(4):
            assert client.line() == "PING"
            client.send("PONG\r\n")


# -- frames --------------------------------------------------------------------------------------


def test_a_payload_above_the_limit_is_refused_before_it_has_come(start: Starter) -> None:
    with plain_client(start(max_payload=10).port) as client:
        assert client.info()["max_payload"] == 10
        connect(client)
        client.send("PUB a 10\r\n0123456789\r\n")
        assert client.ping() == []
        client.send("PUB a 11\r\n")
        assert client.line() == "-ERR 'Maximum Payload Violation'"
        assert client.is_closed()


def test_the_error_is_read_even_if_the_payload_was_under_way(start: Starter) -> None:
    with plain_client(start(max_payload=10).port) as client:
        client.info()
        connect(client)
        client.send(b"PUB a 500000\r\n" + b"x" * 500_000)
        assert client.line() == "-ERR 'Maximum Payload Violation'"


def test_a_control_line_above_the_limit_ends_the_connection(start: Starter) -> None:
    with plain_client(start(max_control_line=64).port) as client:
        client.info()
        connect(client)
        client.send("SUB " + "a" * 100 + " 1\r\n")
        assert client.line() == "-ERR 'maximum control line exceeded'"
        assert client.is_closed()


def test_one_subscription_too_many_is_refused_and_the_others_stay(start: Starter) -> None:
    with plain_client(start(max_subscriptions=2).port) as client:
        client.info()
        connect(client)
        client.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        assert client.ping() == ["-ERR 'maximum subscriptions exceeded'"]
        client.send("UNSUB 1\r\nSUB c 3\r\nPUB c 2\r\nhi\r\n")
        assert client.ping() == ["MSG c 3 2", "hi"]


def test_too_many_tokens_are_refused(start: Starter) -> None:
    with plain_client(start(max_sub_tokens=2).port) as client:
        client.info()
        connect(client)
        client.send("SUB a.b.c 1\r\n")
        said = "-ERR 'Permissions Violation for Subscription to \"a.b.c\", too many tokens'"
        assert client.ping() == [said]


# -- slow consumers ------------------------------------------------------------------------------


class Flood:
    """A client that takes nothing of what it subscribed to, one that does, and a publisher."""

    def __init__(self, stack: ExitStack, server: Server) -> None:
        self.server = server
        self.slow = stack.enter_context(plain_client(server.port))
        self.slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
        self.good = stack.enter_context(plain_client(server.port))
        self.publisher = stack.enter_context(plain_client(server.port))
        for client in (self.slow, self.good, self.publisher):
            client.info()
            connect(client)
        self.slow.send("SUB a 1\r\n")
        self.good.send("SUB a 1\r\n")
        self.slow.ping()
        self.good.ping()
        # Buffers of the system's that do not grow: what waits in them is known.
        side = self._its_connection()._transport.get_extra_info("socket")
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
        self.sent = 0
        self.taken = 0
        self.good.socket.settimeout(None)  # it goes on taking, however long nothing comes
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := self.good.socket.recv(MIB):
                self.taken += len(chunk)

    def publish(self, count: int, size: int) -> None:
        self.sent += (len(b"MSG a 1 %d\r\n" % size) + size + 2) * count
        self.publisher.send(b"PUB a %d\r\n%b\r\n" % (size, b"x" * size) * count)
        assert self.publisher.ping() == []

    def publish_until(self, condition: Callable[[], bool]) -> None:
        """Publish; who takes everything has all of it then."""
        while not condition():
            self.publish(2, 512 * 1024)
            self.wait_for(lambda: self.taken >= self.sent)

    def waiting_for_the_slow_one(self) -> int:
        """Bytes that the server has for it and cannot give to the system."""
        unsent: int = self._its_connection().unsent()
        return unsent

    def _its_connection(self) -> Any:
        assert self.server.runtime is not None
        port = self.slow.socket.getsockname()[1]
        (its,) = (c for c in self.server.runtime.connections if c.facts["port"] == port)
        return its

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_who_takes_less_than_it_is_sent_is_cut_off_without_harm_to_others(
    start: Starter,
) -> None:
    server = start(max_pending=2 * MIB)
    engine = engine_of(server)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        # Step by step: who takes everything must not fall behind on a busy machine.
        flood.publish_until(lambda: engine.slow_consumers > 0)
        assert flood.sent < 8 * MIB
        assert flood.publisher.ping() == []
        reasons = [closed.reason for closed in engine.closed_sessions]
        assert reasons == ["Slow Consumer (Pending Bytes)"]
        flood.slow.is_closed()
        assert b"-ERR" not in flood.slow.inbox


def test_without_stalling_what_is_too_much_for_one_client_is_dropped_for_it(
    start: Starter,
) -> None:
    server = start(max_pending=4 * MIB, no_fast_producer_stall=True)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        flood.publish_until(lambda: flood.sent > 64 * MIB)
        assert engine_of(server).slow_consumers == 0
        flood.slow.send("PING\r\n")
        received = b""
        while b"PONG\r\n" not in received[-64:]:
            received += flood.slow.socket.recv(MIB)
        assert 3 * MIB < len(received) < 64 * MIB
        flood.publisher.send("PUB a 2\r\nhi\r\n")
        assert flood.slow.line() == "MSG a 1 2"


def test_who_takes_nothing_for_the_write_deadline_is_cut_off(start: Starter) -> None:
    server = start(write_deadline=10 * SECOND, max_pending=256 * MIB)
    engine = engine_of(server)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        timers = HandTimers(server)
        flood.publish(32, 512 * 1024)
        flood.wait_for(lambda: flood.taken >= flood.sent)
        timers.advance(9.9)
        assert engine.slow_consumers == 0
        timers.advance(0.2)
        assert engine.slow_consumers == 1
        (closed,) = engine.closed_sessions
        assert closed.reason == "Slow Consumer (Write Deadline)"


def test_the_deadline_begins_when_the_client_last_took_what_waited(start: Starter) -> None:
    server = start(write_deadline=10 * SECOND, max_pending=256 * MIB)
    engine = engine_of(server)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        timers = HandTimers(server)
        flood.publish_until(lambda: flood.waiting_for_the_slow_one() > 2 * MIB)
        flood.publish(1, 512 * 1024)
        flood.wait_for(lambda: flood.taken >= flood.sent)
        waited = flood.waiting_for_the_slow_one()
        taken = 0
        while taken < waited // 2:  # more than waited when the deadline began
            taken += len(flood.slow.socket.recv(256 * 1024))
        flood.wait_for(lambda: flood.waiting_for_the_slow_one() < waited)
        timers.advance(1)  # the first look finds that
        timers.advance(9.9)
        assert engine.slow_consumers == 0
        timers.advance(0.2)
        assert engine.slow_consumers == 1


def test_little_that_waits_has_a_deadline_too(start: Starter) -> None:
    server = start(write_deadline=10 * SECOND, max_pending=256 * MIB)
    engine = engine_of(server)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        timers = HandTimers(server)
        while not flood.waiting_for_the_slow_one():
            flood.publish(1, 16 * 1024)
            flood.wait_for(lambda: flood.taken >= flood.sent)
        assert flood.waiting_for_the_slow_one() <= 32 * 1024
        timers.advance(10)
        assert engine.slow_consumers == 1


def test_who_takes_slowly_but_steadily_stays(start: Starter) -> None:
    server = start(write_deadline=10 * SECOND, max_pending=256 * MIB)
    with ExitStack() as stack:
        flood = Flood(stack, server)
        timers = HandTimers(server)
        taken = 0
        for _ in range(4):
            flood.publish_until(lambda: flood.waiting_for_the_slow_one() > 2 * MIB)
            waited = flood.sent
            flood.publish_until(lambda: flood.waiting_for_the_slow_one() > 6 * MIB)
            while taken < waited:
                chunk = flood.slow.socket.recv(256 * 1024)
                assert chunk
                taken += len(chunk)
            assert flood.waiting_for_the_slow_one() > 0  # it never catches up
            timers.advance(10)
        assert engine_of(server).slow_consumers == 0


def test_a_closed_client_may_take_its_time_for_what_was_sent_before(start: Starter) -> None:
    with ExitStack() as stack:
        server = start(max_pending=256 * MIB)
        flood = Flood(stack, server)
        timers = HandTimers(server)
        flood.publish(40, 512 * 1024)
        flood.slow.send("NONSENSE\r\n")
        flood.wait_for(lambda: len(engine_of(server).closed_sessions) == 1)
        received, taken = b"", 0
        while chunk := flood.slow.socket.recv(MIB):
            received = received[-100:] + chunk
            if (taken + len(chunk)) // MIB > taken // MIB:
                timers.advance(0.4)
            taken += len(chunk)
        assert taken > 20 * MIB
        assert received.endswith(b"-ERR 'Unknown Protocol Operation'\r\n")


# -- INFO ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advertised", "shown"), [("a.example:99", ("a.example", 99)), ("a.example", ("a.example", 0))]
)
def test_info_shows_the_advertised_address(
    start: Starter, advertised: str, shown: tuple[str, int]
) -> None:
    server = start({"client_advertise": advertised})
    with plain_client(server.port) as client:
        info = client.info()
    assert (info["host"], info["port"]) == (shown[0], shown[1] or server.port)
