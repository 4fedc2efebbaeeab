"""What one client may cost the others: work is counted in steps, never measured.

Tests that look at a single round call the session and the engine by hand; `Driver.finish` would run
all rounds there are.
"""

from random import Random

import pytest

from slipstream.engine.loop.turn import (
    API_SLICE,
    QUANTUM,
    QUANTUM_MIN,
    REQUEST,
    ROUND,
    WRITE_SLICE,
)
from slipstream.engine.protocol.options import EngineOptions
from slipstream.engine.rounds import READS_MAX
from slipstream.engine.session.session import ClientSession
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk

SUBSCRIBE_STEPS = 50
READ = 256 * 1024  # bytes that one read brings at the most
KIB = 1024
MIB = 1024 * KIB


def hears(client: Client) -> bytes:
    """What was written to the client since it was last asked."""
    data, client.transport.written = bytes(client.transport.written), bytearray()
    return data


def pings_in_between(driver: Driver, neighbour: Client) -> bytes:
    """The neighbour sends PING after what was read from others, before their next round."""
    neighbour.session.receive(b"PING\r\n")
    driver.engine.rounds.finish_turn()
    return hears(neighbour)


def subscriptions(count: int, subject: bytes = b"a.%d") -> bytes:
    literal = b"%" not in subject
    return b"".join(
        b"SUB %b %d\r\n" % (subject if literal else subject % i, i) for i in range(2, count + 2)
    )


# -- a quantum for each read ---------------------------------------------------------------------


@pytest.mark.parametrize("subject", [b"a.%d", b"a.%d.*", b"same"])
def test_a_neighbour_waits_for_a_quantum_of_subscriptions_not_for_all(
    driver: Driver, subject: bytes
) -> None:
    hog, neighbour = driver.client(), driver.client()
    hog.session.receive(subscriptions(20_000, subject))
    assert pings_in_between(driver, neighbour) == b"PONG\r\n"
    assert len(hog.session.subscriptions) <= QUANTUM // SUBSCRIBE_STEPS + 2
    assert not hog.transport.is_read
    driver.finish()
    assert len(hog.session.subscriptions) == 20_001
    assert hog.transport.is_read


def test_a_parked_client_gets_a_small_quantum_in_each_round(driver: Driver) -> None:
    hog = driver.client()
    hog.session.receive(subscriptions(20_000))
    before = len(hog.session.subscriptions)
    driver.engine.rounds.finish_turn()
    driver.engine.rounds.go_on()
    assert 0 < len(hog.session.subscriptions) - before <= QUANTUM_MIN // SUBSCRIBE_STEPS + 1


def test_many_hogs_share_a_round(driver: Driver) -> None:
    hogs = [driver.client() for _ in range(40)]
    for hog in hogs:
        hog.session.receive(subscriptions(2_000))
    turn = driver.engine.turn
    overdraft = QUANTUM + len(hogs) * (QUANTUM_MIN + SUBSCRIBE_STEPS)
    assert turn.spent <= ROUND + overdraft
    driver.engine.rounds.finish_turn()
    driver.engine.rounds.go_on()
    assert turn.spent <= ROUND // 2 + QUANTUM_MIN + SUBSCRIBE_STEPS
    driver.finish()
    assert all(len(hog.session.subscriptions) == 2_001 for hog in hogs)


def test_a_message_to_many_counts_for_each_of_them(driver: Driver) -> None:
    driver.engine.options.max_payload = MIB
    takers = [driver.client() for _ in range(300)]
    for taker in takers:
        taker.subscribe("all")
    publisher, neighbour = driver.client(), driver.client()
    publisher.session.receive(b"PUB all 1024\r\n%b\r\n" % (b"x" * KIB) * 250)
    assert pings_in_between(driver, neighbour) == b"PONG\r\n"
    delivered = sum(taker.session.out_msgs for taker in takers)
    assert 300 <= delivered <= QUANTUM
    driver.finish()
    assert [len(taker.take()) for taker in takers] == [250] * 300


def test_publishes_to_one_subscriber_fit_into_a_read(driver: Driver) -> None:
    taker, publisher = driver.client(), driver.client()
    taker.subscribe("a")
    for body in (b"", b"x" * 16, b"x" * 128, b"x" * 1024):
        frame = b"PUB a %d\r\n%b\r\n" % (len(body), body)
        publisher.session.receive(frame * (READ // len(frame)))
        assert not publisher.session.stopped_by
        driver.engine.rounds.finish_turn()
        driver.engine.rounds.go_on()


def test_a_client_that_repeats_connect_is_only_slow(driver: Driver) -> None:
    client = driver.client()
    client.send(b'CONNECT {"verbose":false}\r\n' * 5000 + b"PING\r\n")
    client.take()
    assert client.lines[-1] == b"PONG"


def test_what_a_client_leaves_behind_is_taken_away_bit_by_bit(driver: Driver) -> None:
    hog, other = driver.client(), driver.client()
    hog.send(subscriptions(10_000, b"same"))
    hog.session.gone("Client Closed")
    other.publish("same", b"x", "_INBOX.t.1")
    (answer,) = other.take()
    assert answer.status.startswith("503")
    account = driver.engine.default_account
    hog = driver.client()
    hog.send(subscriptions(10_000))
    before = len(account.trie)
    hog.session.gone("Client Closed")
    assert len(account.trie) == before
    driver.engine.rounds.finish_turn()
    driver.engine.rounds.go_on()
    assert 0 < before - len(account.trie) <= ROUND // SUBSCRIBE_STEPS
    driver.finish()
    assert len(account.trie) == before - 10_001


def test_consumers_with_much_to_deliver_do_not_fill_a_turn(driver: Driver, client: Client) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    client.send(b"PUB s 1\r\nx\r\n" * 1000)
    takers = [driver.client() for _ in range(60)]
    for i in range(60):
        config = {"name": f"c{i}", "deliver_subject": f"in.{i}", "ack_policy": "none"}
        client.api(f"CONSUMER.CREATE.S.c{i}", {"stream_name": "S", "config": config})
    driver.engine.rounds.go_on()
    for i, taker in enumerate(takers):
        taker.session.receive(b"SUB in.%d 2\r\n" % i)
    driver.engine.turn.spent = 0
    driver.engine.rounds.finish_turn()
    assert 0 < driver.engine.turn.spent < 2 * ROUND
    assert sum(taker.session.out_msgs for taker in takers) < 60 * 1000
    driver.finish()
    taken = [sum(message.sid == "2" for message in taker.take()) for taker in takers]
    assert taken == [1000] * 60


# -- API requests --------------------------------------------------------------------------------


@pytest.fixture
def asked(client: Client) -> Client:
    """A client with a stream S, which listens at `in.*`."""
    client.subscribe("in.*")
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    return client


def infos(count: int, first: int = 0) -> bytes:
    numbers = range(first, first + count)
    return b"".join(b"PUB $JS.API.STREAM.INFO.S in.%d 0\r\n\r\n" % i for i in numbers)


def test_api_requests_have_a_share_of_a_round_and_are_answered_in_order(
    driver: Driver, asked: Client
) -> None:
    neighbour = driver.client()
    asked.session.receive(infos(2_000))
    assert pings_in_between(driver, neighbour) == b"PONG\r\n"
    answered = hears(asked).count(b"\r\nMSG ") + 1
    assert 0 < answered <= API_SLICE // REQUEST
    asked.send(b"PUB s 1\r\nx\r\n")
    answers = [message.subject for message in asked.take()]
    assert answers == [f"in.{i}" for i in range(answered, 2_000)]
    assert asked.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_publish_after_an_api_request_waits_for_it(driver: Driver, asked: Client) -> None:
    driver.engine.turn.api_spent = API_SLICE
    asked.session.receive(b"PUB $JS.API.STREAM.PURGE.S 0\r\n\r\nPUB s 1\r\nx\r\n")
    assert len(driver.engine.rounds.requests) == 1
    driver.finish()
    assert asked.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_when_too_many_api_requests_wait_all_of_them_are_dropped(driver: Driver) -> None:
    driver.options.ceilings.request_queue_limit = 3
    driver.client().api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    watcher = driver.client(driver.engine.system_account)
    watcher.subscribe("$JS.EVENT.ADVISORY.API.LIMIT_REACHED")
    clients = [driver.client() for _ in range(5)]
    driver.engine.turn.api_spent = API_SLICE
    for i, client in enumerate(clients):
        client.session.receive(b"SUB in.%d 2\r\n" % i + infos(1, i) + b"PING\r\n")
    driver.finish()
    assert [len(client.take()) for client in clients] == [0, 0, 0, 1, 1]
    assert all(client.lines[-1] == b"PONG" for client in clients)
    (advisory,) = watcher.take()
    found = advisory.json()
    assert found["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
    assert (found["server"], found["dropped"]) == ("here", 3)


def test_requests_that_wait_when_jetstream_stops_are_not_answered(
    driver: Driver, asked: Client
) -> None:
    driver.engine.turn.api_spent = API_SLICE
    asked.session.receive(infos(1) + b"PING\r\n")
    driver.engine.stop_account(driver.engine.default_account)
    driver.finish()
    assert asked.take() == []
    assert asked.lines[-1] == b"PONG"


# -- requests that wait for the disk -------------------------------------------------------------


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.fixture
def cold(disk: SimulatedDisk) -> Client:
    """A client of a server whose stream S has old messages, on a disk that takes its time."""
    driver = Driver(disk, segment_bytes=4 * KIB).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    for _ in range(10):
        client.store("S", bytes(KIB))
    disk.is_cold = driver.runner.holds_reads = True
    driver.runner.hold()
    return driver.client()


GETS = ["$JS.API.DIRECT.GET.S", "$JS.API.STREAM.MSG.GET.S"]


@pytest.mark.parametrize("subject", GETS)
def test_who_asks_for_more_than_the_disk_reads_is_not_read_from(cold: Client, subject: str) -> None:
    driver = cold.driver
    asked = 2 * READS_MAX
    for n in range(asked):
        cold.session.receive(encode(subject, b'{"seq":1}', f"_INBOX.t.{n}"))
        driver.finish()
    assert len(driver.runner.waiting) == READS_MAX
    other = driver.client()
    other.send(b"PING\r\n")
    other.take()
    assert other.lines[-1] == b"PONG"
    while driver.runner.waiting:
        driver.runner.release()
        driver.finish()
    assert [message.subject for message in cold.take()] == [f"_INBOX.t.{n}" for n in range(asked)]
    cold.send(b"PING\r\n")
    cold.take()
    assert cold.lines[-1] == b"PONG"


def test_who_asks_for_more_batches_than_the_disk_reads_is_not_read_from(cold: Client) -> None:
    driver = cold.driver
    asked = 2 * READS_MAX
    for n in range(asked):
        request = encode("$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":10}', f"_INBOX.t.{n}")
        cold.session.receive(request)
    driver.finish()
    ends = []
    while driver.runner.waiting:
        assert len(driver.runner.waiting) <= READS_MAX
        driver.runner.release()
        driver.finish()
        ends += [message.subject for message in cold.take() if message.status == "204 EOB"]
    assert sorted(ends) == sorted(f"_INBOX.t.{n}" for n in range(asked))


@pytest.mark.parametrize("subject", GETS)
def test_what_is_read_for_a_request_when_jetstream_stops_opens_no_file(
    cold: Client, disk: SimulatedDisk, subject: str
) -> None:
    driver = cold.driver
    cold.session.receive(encode(subject, b'{"seq":1}', "_INBOX.t.a"))
    driver.finish()
    assert driver.runner.waiting
    driver.engine.stop_account(driver.engine.default_account)
    begun = disk.calls["open"]
    driver.runner.release()
    driver.finish()
    assert disk.calls["open"] == begun
    assert all(message.status for message in cold.take())


# -- clients that do not take what they are sent -------------------------------------------------


def crowd(total: int, *, stall: bool = True) -> tuple[Driver, list[Client], Client]:
    """An engine where all clients may have `total` bytes pending, three that take nothing of what
    comes to `a`, and a publisher."""
    options = EngineOptions(
        server_name="here", max_pending=4 * MIB, max_pending_total=total,
        no_fast_producer_stall=not stall,
    )  # fmt: skip
    driver = Driver(options=options)
    deaf = [driver.client() for _ in range(3)]
    for client in deaf:
        client.subscribe("a")
    return driver, deaf, driver.client()


def test_what_waits_for_a_client_is_written_in_pieces(driver: Driver) -> None:
    deaf, publisher = driver.client(), driver.client()
    deaf.subscribe("a")
    deaf.transport.backlog = 1
    hears(deaf)
    for _ in range(100):
        publisher.publish("a", b"x")
    assert hears(deaf) == b""
    deaf.transport.backlog = 0
    deaf.session.drained()
    driver.finish()
    assert hears(deaf) == b"MSG a 2 1\r\nx\r\n" * 100


def test_above_the_bound_of_all_clients_those_with_most_pending_are_cut_off() -> None:
    driver, deaf, publisher = crowd(5 * MIB)
    for client, backlog in zip(deaf, (MIB, 3 * MIB, 2 * MIB), strict=True):
        client.transport.backlog = backlog
    driver.engine.output.count_pending()
    assert [client.transport.closed for client in deaf] == [False, True, False]
    assert deaf[1].session.close_reason == "Slow Consumer (Pending Bytes)"
    assert driver.engine.slow_consumers == 1
    assert driver.engine.is_crowded
    assert not publisher.transport.closed


def test_in_a_crowd_a_publisher_rests_after_each_message_for_who_is_behind() -> None:
    driver, deaf, publisher = crowd(16 * MIB)
    for client in deaf:
        client.transport.backlog = 3 * MIB
    driver.engine.output.count_pending()
    publisher.publish("a", b"1")
    assert publisher.transport.stalls == 0  # it was not known yet that they are behind
    publisher.send(b"PUB a 1\r\n2\r\nPUB a 1\r\n3\r\n" * 10)
    assert publisher.transport.stalls == 1
    assert not publisher.transport.is_read
    for client in deaf:
        client.transport.backlog = 0
        client.session.drained()
    driver.engine.output.count_pending()
    assert not driver.engine.is_crowded
    publisher.send(b"PING\r\n")
    publisher.take()
    assert publisher.lines[-1] == b"PONG"
    assert publisher.transport.is_read


def test_a_publisher_to_others_does_not_rest_in_a_crowd() -> None:
    driver, deaf, publisher = crowd(16 * MIB)
    for client in deaf:
        client.transport.backlog = 3 * MIB
    driver.engine.output.count_pending()
    publisher.publish("a", b"1")
    other = driver.client()
    other.subscribe("b")
    other.send(b"PUB b 1\r\nx\r\n" * 10)
    assert len(other.take()) == 10
    assert other.transport.stalls == 0


def test_without_stalling_a_crowd_misses_messages() -> None:
    driver, deaf, publisher = crowd(16 * MIB, stall=False)
    for client in deaf:
        client.transport.backlog = 3 * MIB
    driver.engine.output.count_pending()
    for _ in range(3):
        publisher.publish("a", b"x")
    assert publisher.transport.stalls == 0
    assert [len(client.take()) for client in deaf] == [1, 1, 1]


def test_pending_bytes_are_counted_when_enough_was_written_to_matter() -> None:
    driver, deaf, publisher = crowd(5 * MIB)
    counted = []
    all_sessions = driver.engine.all_sessions

    def counting() -> list[ClientSession]:
        counted.append(1)
        return all_sessions()

    driver.engine.all_sessions = counting  # type: ignore[method-assign]
    for _ in range(64):
        publisher.publish("a", b"x" * 64 * KIB)
    assert 1 <= len(counted) <= 3 * 64 * 64 * KIB // (5 * MIB // 16)
    for client in deaf:
        client.transport.backlog = 3 * MIB
    for _ in range(64):
        publisher.publish("a", b"x" * 64 * KIB)
    assert sum(client.transport.closed for client in deaf) == 2


@pytest.mark.parametrize("most", [2**61, 2**63 - 1])
def test_who_bounds_nothing_is_delivered_to(most: int) -> None:
    driver = Driver(options=EngineOptions(server_name="here", max_pending=most))
    reader, publisher = driver.client(), driver.client()
    reader.subscribe("a")
    publisher.publish("a", b"x")
    assert [message.body for message in reader.take()] == [b"x"]


# -- large messages ------------------------------------------------------------------------------


def frame(subject: bytes, header: bytes, body: bytes) -> bytes:
    if not header:
        return b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body)
    sizes = (len(header), len(header) + len(body))
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, *sizes, header, body)


@pytest.mark.parametrize("header", [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
@pytest.mark.parametrize("others", [b"", b"PING\r\n" * 30_000])
def test_a_large_message_is_one_object_for_all_who_are_sent_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, header: bytes, others: bytes
) -> None:
    driver.engine.options.max_payload = MIB
    takers = [driver.client() for _ in range(50)]
    plain = driver.client()
    plain.session.headers = False
    parts: list[bytes] = []
    for taker in [*takers, plain]:
        taker.subscribe("all")
        monkeypatch.setattr(taker.transport, "write_parts", parts.extend)
    publisher = driver.client()
    body = b"x" * (128 * KIB)
    publisher.send(frame(b"all", header, body) + others)
    large = {id(part): part for part in parts if len(part) >= len(body)}
    assert sorted(large.values(), key=len) == sorted(
        {body + b"\r\n", header + body + b"\r\n"}, key=len
    )
    assert len(parts) == 2 * 51


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, MIB])
@pytest.mark.parametrize("header", [b"", b"NATS/1.0\r\nA: b\r\n\r\n"])
def test_a_large_message_arrives_as_a_small_one_does(
    driver: Driver, size: int, header: bytes
) -> None:
    driver.engine.options.max_payload = 2 * MIB
    taker, publisher = driver.client(), driver.client()
    taker.send(b"SUB a.* 9\r\nPING\r\n")
    hears(taker)
    bodies = [bytes([65 + i]) * size for i in range(3)]
    small = frame(b"a.small", b"", b"s")
    publisher.session.limit_payload(2 * MIB)
    publisher.send(b"".join(small + frame(b"a.large", header, body) for body in bodies) + small)
    line = b"HMSG a.large 9 %d %d\r\n" % (len(header), len(header) + size)
    if not header:
        line = b"MSG a.large 9 %d\r\n" % size
    said = b"MSG a.small 9 1\r\ns\r\n"
    expected = b"".join(b"%b%b%b%b\r\n" % (said, line, header, body) for body in bodies) + said
    assert hears(taker) == expected


def test_a_neighbour_waits_for_a_slice_of_large_messages_not_for_all(driver: Driver) -> None:
    driver.engine.options.max_payload = MIB
    takers = [driver.client() for _ in range(40)]
    for taker in takers:
        taker.subscribe("all")
        hears(taker)
    publisher, neighbour = driver.client(), driver.client()
    publisher.session.receive(frame(b"all", b"", b"x" * MIB) * 2)
    assert pings_in_between(driver, neighbour) == b"PONG\r\n"
    assert not publisher.transport.is_read
    written = [0, sum(len(taker.transport.written) for taker in takers)]
    assert written[1] <= WRITE_SLICE + 2 * MIB
    while written[-1] < 40 * MIB:
        assert sum(taker.session.out_msgs for taker in takers) == 40  # the second one waits
        driver.engine.rounds.go_on()
        driver.engine.rounds.finish_turn()
        written.append(sum(len(taker.transport.written) for taker in takers))
        assert 0 < written[-1] - written[-2] <= WRITE_SLICE + 2 * MIB
    driver.finish()
    assert [len(taker.take()) for taker in takers] == [2] * 40
    assert publisher.transport.is_read


def test_who_leaves_before_its_slice_leaves_nothing(driver: Driver) -> None:
    driver.engine.options.max_payload = MIB
    takers = [driver.client() for _ in range(40)]
    for taker in takers:
        taker.subscribe("all")
    publisher = driver.client()
    publisher.session.receive(frame(b"all", b"", b"x" * MIB))
    driver.engine.rounds.finish_turn()
    for taker in takers[1:]:
        taker.session.gone("Client Closed")
    driver.finish()
    assert not driver.engine.turn.laden
    assert len(takers[0].take()) == 1
    assert publisher.transport.is_read
