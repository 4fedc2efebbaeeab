"""Kombu's exchanges and queues on a stream, and Celery on top of them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import slipstream

kombu = pytest.importorskip("kombu", reason="kombu is not installed")
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
            made = kombu.Connection(
                url, transport="slipstream.kombu:Transport", transport_options=given
            )
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
    app.conf.update(broker_transport="slipstream.kombu:Transport", task_acks_late=True)

    @app.task(bind=True, max_retries=2)  # type: ignore[untyped-decorator]
    def third_time(self: Any, n: int) -> int:
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return n * 2

    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=WAIT_SECONDS):
        assert third_time.delay(21).get(timeout=WAIT_SECONDS) == 42
        assert app.control.ping(timeout=WAIT_SECONDS, limit=1)
