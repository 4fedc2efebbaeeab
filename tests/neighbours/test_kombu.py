"""Kombu's exchanges and queues on a stream, and Celery on top of them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import slipstream

kombu = pytest.importorskip("kombu", reason="kombu is not installed")
transport = pytest.importorskip("slipstream.kombu")
TRANSPORT = "slipstream.kombu:Transport"
WAIT_SECONDS = 20.0
ACK_WAIT_SECONDS = 0.6

Connect = Callable[..., Any]  # from transport options to a kombu.Connection


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for these tests."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("store"))) as running:
        yield running.url


@pytest.fixture
def connect(url: str, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connections, each as of a process of its own, to a stream of the test's own."""
    with ExitStack() as stack:

        def connection(**options: object) -> Any:
            given = {"stream": f"K{abs(hash(request.node.name))}", **options}
            made = kombu.Connection(url, transport=TRANSPORT, transport_options=given)
            return stack.enter_context(made)

        yield connection


class Received(list[Any]):
    """What a consumer was given."""

    def __init__(self, connection: Any, *queues: Any, **options: Any) -> None:
        super().__init__()
        self._connection = connection
        self.channel = connection.channel()
        if "prefetch" in options:
            self.channel.basic_qos(prefetch_count=options.pop("prefetch"))
        self.consumer = kombu.Consumer(
            self.channel, queues, callbacks=[lambda _, message: self.append(message)], **options
        )
        self.consumer.consume()

    def until(self, count: int) -> "Received":
        """Wait for so many messages."""
        while len(self) < count:
            self._connection.drain_events(timeout=WAIT_SECONDS)
        return self

    def nothing_more(self, seconds: float = 0.3) -> bool:
        """Whether none comes."""
        before = len(self)
        with pytest.raises(socket.timeout):
            self._connection.drain_events(timeout=seconds)
        return len(self) == before


def die(connection: Any) -> None:
    """End a connection as its process would: nothing is given back."""
    broker = connection.transport.broker
    broker._closed.set()
    broker._nc.close()


def bodies(received: Received) -> list[object]:
    return [message.payload for message in received]


def test_a_queue_gives_each_message_once_and_in_order(connect: Connect) -> None:
    producer = connect().Producer()
    queue = kombu.Queue("work", kombu.Exchange("work"), "work")
    for n in range(20):
        producer.publish(n, exchange="work", routing_key="work", declare=[queue])
    received = Received(connect(), queue).until(20)
    for message in received:
        message.ack()
    assert bodies(received) == list(range(20))
    assert received.nothing_more()
    assert queue(connect().channel()).queue_declare(passive=True).message_count == 0


def test_a_topic_exchange_knows_the_queues_of_other_processes(connect: Connect) -> None:
    exchange = kombu.Exchange("events", type="topic")
    some = Received(connect(), kombu.Queue("some", exchange, "a.*"))
    all_ = Received(connect(), kombu.Queue("all", exchange, "#"))
    producer = connect().Producer(exchange=exchange)
    for key in ("a.x", "b.x"):
        producer.publish(key, routing_key=key)
    assert bodies(all_.until(2)) == ["a.x", "b.x"]
    assert bodies(some.until(1)) == ["a.x"]
    assert some.nothing_more()


def test_a_fanout_reaches_every_queue(connect: Connect) -> None:
    exchange = kombu.Exchange("orders", type="fanout")
    mine, one = connect(), connect()
    here = Received(mine, kombu.Queue("h1", exchange), kombu.Queue("h2", exchange), no_ack=True)
    there = Received(one, kombu.Queue("worker@host.pidbox", exchange, auto_delete=True))
    connect().Producer(exchange=exchange).publish("stop")
    assert bodies(here.until(2)) == ["stop", "stop"]
    assert bodies(there.until(1)) == ["stop"]


def test_a_queue_that_was_deleted_is_bound_no_more(connect: Connect) -> None:
    exchange = kombu.Exchange("news", type="fanout")
    first, second = kombu.Queue("first", exchange), kombu.Queue("second", exchange)
    channel = connect().channel()
    first(channel).declare()
    second(channel).declare()
    first(channel).delete()
    connect().Producer(exchange=exchange).publish("new")
    assert bodies(Received(connect(), second).until(1)) == ["new"]
    assert [row[2] for row in connect().channel().get_table("news")] == ["second"]


def test_what_is_rejected_comes_again_or_is_gone(connect: Connect) -> None:
    producer = connect().Producer()
    queue = kombu.Queue("r", kombu.Exchange("r"), "r")
    producer.publish("a", exchange="r", routing_key="r", declare=[queue])
    received = Received(connect(), queue).until(1)
    received[0].requeue()
    received.until(2)
    assert received[1].delivery_info["redelivered"]
    received[1].reject()
    assert received.nothing_more()


def test_no_more_is_given_than_was_asked_for(connect: Connect) -> None:
    producer = connect().Producer()
    queue = kombu.Queue("p", kombu.Exchange("p"), "p")
    for n in range(4):
        producer.publish(n, exchange="p", routing_key="p", declare=[queue])
    received = Received(connect(), queue, prefetch=2).until(2)
    assert received.nothing_more()
    received[0].ack()
    assert bodies(received.until(3)) == [0, 1, 2]


def test_a_message_is_its_worker_s_as_long_as_that_lives(connect: Connect) -> None:
    queue = kombu.Queue("long", kombu.Exchange("long"), "long")
    worker = connect(ack_wait=ACK_WAIT_SECONDS)
    received = Received(worker, queue)
    connect().Producer().publish("task", exchange="long", routing_key="long")
    received.until(1)
    other = Received(connect(ack_wait=ACK_WAIT_SECONDS), queue)
    assert other.nothing_more(4 * ACK_WAIT_SECONDS)
    die(worker)
    assert bodies(other.until(1)) == ["task"]
    assert other[0].delivery_info["redelivered"]


def test_what_a_worker_has_when_it_stops_goes_to_others_at_once(connect: Connect) -> None:
    queue = kombu.Queue("stop", kombu.Exchange("stop"), "stop")
    worker = connect()
    received = Received(worker, queue)
    connect().Producer().publish("task", exchange="stop", routing_key="stop")
    received.until(1)
    worker.close()
    assert bodies(Received(connect(), queue).until(1)) == ["task"]


def test_purge_and_get_are_there(connect: Connect) -> None:
    channel = connect().channel()
    queue = kombu.Queue("x y.z>*", kombu.Exchange("g"), "g")(channel)
    queue.declare()
    for n in range(3):
        connect().Producer().publish(n, exchange="g", routing_key="g")
    message = queue.get()
    assert message.payload == 0
    message.ack()
    assert queue.get(no_ack=True).payload == 1
    assert queue.purge() == 1
    assert queue.get() is None


def test_a_busy_worker_keeps_nothing_that_another_one_could_do(connect: Connect) -> None:
    queue = kombu.Queue("busy", kombu.Exchange("busy"), "busy")
    busy = Received(connect(), queue, prefetch=1)
    producer = connect().Producer()
    producer.publish("first", exchange="busy", routing_key="busy")
    busy.until(1)
    producer.publish("second", exchange="busy", routing_key="busy")
    idle = Received(connect(), queue, prefetch=1).until(1)
    assert bodies(idle) == ["second"]
    busy[0].ack()
    assert busy.nothing_more()


def test_of_several_queues_no_more_is_kept_than_was_asked_for(connect: Connect) -> None:
    queues = [kombu.Queue(f"m{n}", kombu.Exchange("m"), f"m{n}") for n in range(4)]
    busy = Received(connect(), *queues, prefetch=1)
    producer = connect().Producer()
    for n in range(4):
        producer.publish(n, exchange="m", routing_key=f"m{n}")
    busy.until(1)
    assert busy.nothing_more()
    idle = Received(connect(), *queues).until(3)
    assert sorted([*bodies(busy), *bodies(idle)]) == [0, 1, 2, 3]


def test_a_queue_is_told_as_often_as_it_wants_whoever_has_made_it(connect: Connect) -> None:
    queue = kombu.Queue("short", kombu.Exchange("short"), "short")
    queue(connect(ack_wait=ACK_WAIT_SECONDS).channel()).declare()
    received = Received(connect(), queue)
    connect().Producer().publish("task", exchange="short", routing_key="short")
    received.until(1)
    other = Received(connect(), queue)
    assert other.nothing_more(6 * ACK_WAIT_SECONDS)


def test_what_is_recovered_comes_again_and_once(connect: Connect) -> None:
    queue = kombu.Queue("again", kombu.Exchange("again"), "again")
    received = Received(connect(), queue)
    connect().Producer().publish("task", exchange="again", routing_key="again")
    received.until(1)
    received.consumer.recover(requeue=True)
    received.until(2)
    assert received[1].delivery_info["redelivered"]
    received[1].ack()
    assert received.nothing_more()
    assert queue(connect().channel()).queue_declare(passive=True).message_count == 0


def test_what_a_worker_has_is_not_purged(connect: Connect) -> None:
    queue = kombu.Queue("pg", kombu.Exchange("pg"), "pg")
    worker = connect()
    received = Received(worker, queue, prefetch=1)
    for n in range(5):
        connect().Producer().publish(n, exchange="pg", routing_key="pg")
    received.until(1)
    channel = connect().channel()
    assert queue(channel).purge() == 4
    worker.close()
    assert bodies(Received(connect(), queue).until(1)) == [0]
    assert kombu.Queue("nowhere")(channel).purge() == 0


def test_what_is_none_of_kombus_is_removed_and_said(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect()
    queue = kombu.Queue("odd", kombu.Exchange("odd"), "odd")
    received = Received(connection, queue)
    broker = connection.transport.broker
    for data in (b"hello", b"[]", b'{"properties": 1}'):
        broker._js.publish(broker.subject("odd"), data)
    connect().Producer().publish("task", exchange="odd", routing_key="odd")
    assert bodies(received.until(1)) == ["task"]
    assert caplog.text.count("none of Kombu's") == 3
    assert received.nothing_more()


def test_a_message_that_is_too_large_is_refused_at_once_and_others_go_on(connect: Connect) -> None:
    queue = kombu.Queue("large", kombu.Exchange("large"), "large")
    producer = connect().Producer()
    with pytest.raises(ValueError, match="max_payload"):
        producer.publish("x" * 2_000_000, exchange="large", routing_key="large", declare=[queue],
                         retry=True)  # fmt: skip
    producer.publish("x" * 500_000, exchange="large", routing_key="large")
    assert len(bodies(Received(connect(), queue).until(1))[0]) == 500_000


def test_a_queue_that_is_unbound_gets_nothing_more(connect: Connect) -> None:
    exchange = kombu.Exchange("ub", type="fanout")
    first, second = (kombu.Queue(f"ub{n}", exchange)(connect().channel()) for n in range(2))
    for queue in (first, second):
        queue.declare()
    first.unbind_from(exchange)
    connect().Producer(exchange=exchange).publish("new")
    assert bodies(Received(connect(), second).until(1)) == ["new"]
    assert first.get() is None


def test_a_queue_that_is_declared_again_is_bound_again(connect: Connect) -> None:
    exchange = kombu.Exchange("re", type="fanout")
    connection = connect()
    queue = kombu.Queue("re", exchange)(connection.channel())
    queue.declare()
    connection.transport.broker.change_bindings("re", lambda rows: [])  # as another process may
    queue.declare()
    connect().Producer(exchange=exchange).publish("new")
    assert queue.get().payload == "new"


def test_an_exchange_goes_without_its_queues(connect: Connect) -> None:
    exchange = kombu.Exchange("gone")
    channel = connect().channel()
    queue = kombu.Queue("stays", exchange, "stays")(channel)
    queue.declare()
    exchange(channel).delete()
    assert channel.get_table("gone") == []
    assert queue.queue_declare(passive=True).message_count == 0


@pytest.mark.parametrize(
    "name", ["a.b c", "zürich/☃", "q" * 300, "ü" * 120, "*.>", "celery@host.celery.pidbox"]
)
def test_a_queue_may_have_any_name(name: str, connect: Connect) -> None:
    queue = kombu.Queue(name, kombu.Exchange(name), name)
    received = Received(connect(), queue)
    connect().Producer().publish("task", exchange=name, routing_key=name)
    received.until(1)[0].ack()
    assert received[0].delivery_info["routing_key"] == name


def test_names_that_begin_alike_are_told_apart() -> None:
    first, second = transport.name_of("q" * 300), transport.name_of("q" * 301)
    assert first != second
    assert max(len(first), len(second)) <= transport.NAME_MAX


def test_a_queue_that_expires_stays_as_long_as_it_says(connect: Connect) -> None:
    connection = connect()
    for name, arguments in (("rpc", {"expires": 86400.0}), ("box", {"expires": 10.0})):
        kombu.Queue(name, kombu.Exchange(name), name, auto_delete=True, **arguments)(
            connection.channel()
        ).declare()
    broker = connection.transport.broker
    kept = [broker.consumer(name).cached_info.config.inactive_threshold for name in ("rpc", "box")]
    assert kept == [86400.0, transport.TRANSIENT_SECONDS]


def test_a_queue_stays_while_the_thread_that_consumes_it_is_busy(connect: Connect) -> None:
    options = {"ack_wait": ACK_WAIT_SECONDS, "transient_seconds": 2 * ACK_WAIT_SECONDS}
    queue = kombu.Queue("own", kombu.Exchange("own"), "own", auto_delete=True)
    own = Received(connect(**options), queue)
    other = Received(connect(**options), kombu.Queue("other"))
    assert other.nothing_more(10 * ACK_WAIT_SECONDS)  # all the time nobody drains `own`
    connect(**options).Producer().publish("new", exchange="own", routing_key="own")
    assert bodies(own.until(1)) == ["new"]


def test_a_fork_connects_anew(connect: Connect) -> None:
    queue = kombu.Queue("forked", kombu.Exchange("forked"), "forked")
    connection = connect()
    producer = connection.Producer()
    producer.publish("before", exchange="forked", routing_key="forked", declare=[queue])
    connection.transport.broker._process = -1  # what a fork finds
    producer.publish("after", exchange="forked", routing_key="forked", retry=True)
    assert bodies(Received(connect(), queue).until(2)) == ["before", "after"]


@pytest.mark.parametrize(
    ("user", "password", "host", "wanted"),
    [
        ("me", "p@ss/w:rd#", "host", "nats://me:p%40ss%2Fw%3Ard%23@host:4222"),
        ("token", None, "::1", "nats://token@[::1]:4222"),
        (None, None, None, "nats://127.0.0.1:4222"),
    ],
)
def test_the_server_is_called_as_the_url_says(
    user: str | None,
    password: str | None,
    host: str | None,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(transport, "Broker", lambda url, options: called.append(url))
    made = kombu.Connection(hostname=host, userid=user, password=password, transport=TRANSPORT)
    assert made.transport.broker is None
    assert called == [wanted]


def test_a_worker_goes_on_when_the_server_was_started_again(tmp_path: Path) -> None:
    queue = kombu.Queue("on", kombu.Exchange("on"), "on")
    server = slipstream.Server(store_dir=str(tmp_path)).start()
    with ExitStack() as stack:
        worker, client = (
            stack.enter_context(kombu.Connection(server.url, transport=TRANSPORT)) for _ in range(2)
        )
        received = Received(worker, queue, prefetch=1)
        client.Producer().publish("first", exchange="on", routing_key="on")
        received.until(1)
        server.stop()
        port = int(server.url.rpartition(":")[2])
        server = slipstream.Server(store_dir=str(tmp_path), port=port).start()
        stack.callback(server.stop)
        client.Producer().publish("second", exchange="on", routing_key="on", retry=True)
        received[0].ack()
        received.until(2)
        received[1].ack()
        assert received.nothing_more()
        assert bodies(received) == ["first", "second"]


@pytest.fixture
def celery() -> Iterator[Any]:
    """Celery, which leaves the logging of other tests alone."""
    found = pytest.importorskip("celery", reason="celery is not installed")
    from celery.signals import setup_logging

    def leave_alone(**_: object) -> None:
        """Celery sets up no logging where somebody else does."""

    setup_logging.connect(leave_alone)
    yield found
    setup_logging.disconnect(leave_alone)


def test_celery_runs_tasks_and_retries_and_controls_its_workers(url: str, celery: Any) -> None:
    from celery.contrib.testing.worker import start_worker

    app = celery.Celery("tests", broker=url, backend="rpc://", set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_acks_late=True)

    @app.task(bind=True, max_retries=2)  # type: ignore[untyped-decorator]
    def third_time(self: Any, n: int) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return n * 2

    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=WAIT_SECONDS):
        assert third_time.delay(21).get(timeout=WAIT_SECONDS) == 42
        assert app.control.ping(timeout=WAIT_SECONDS, limit=1)
