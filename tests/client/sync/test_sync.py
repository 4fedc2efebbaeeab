"""The same API without await: calls, iterations, contexts, callbacks and futures."""

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from itertools import islice
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import slipstream
import slipstream.sync
from slipstream.client import Status
from slipstream.client.jetstream.errors import StreamNotFoundError, WrongLastSequenceError
from slipstream.client.kv.errors import KeyNotFoundError
from slipstream.client.options import ConnectOptions
from slipstream.client.sync import ANSWERED_AT_ONCE, CLASSES, ConnectionFacade, needs_facade
from slipstream.wire.nuid import DIGITS


@pytest.fixture
def nc(server_url: str) -> Iterator[ConnectionFacade]:
    with slipstream.sync.connect(server_url) as connection:
        yield connection


@pytest.fixture
def name(nc: Any) -> str:
    """A name that no other test uses."""
    return "sync_" + "".join(c for c in nc.new_inbox().rpartition(".")[2] if c in DIGITS)


def test_messages_are_published_and_taken(nc: Any, name: str) -> None:
    subscription = nc.subscribe(name)
    for i in range(3):
        nc.publish(name, str(i), headers={"N": str(i)})
    first = subscription.next(timeout=timedelta(seconds=5))
    assert (first.subject, first.data, first.headers["N"]) == (name, b"0", "0")
    rest = iter(subscription)
    assert [next(rest).data, next(rest).data] == [b"1", b"2"]
    subscription.unsubscribe()
    assert list(subscription) == []


def test_requests_are_answered_by_handlers_that_use_the_same_connection(nc: Any, name: str) -> None:
    seen: list[str] = []

    def answer(message: Any) -> None:
        seen.append(threading.current_thread().name)
        message.respond(nc.request(f"{name}.deeper", message.data, timeout=5).data.upper())

    nc.subscribe(name, handler=answer)
    nc.subscribe(f"{name}.deeper", handler=lambda message: message.respond(message.data + b"!"))
    assert nc.request(name, b"hello", timeout=5).data == b"HELLO!"
    assert seen[0].startswith("slipstream: callback")


def test_classes_have_their_names_for_annotations_and_isinstance(nc: Any, name: str) -> None:
    js = nc.jetstream()
    assert type(js) is slipstream.sync.JetStream
    assert isinstance(nc, slipstream.sync.Connection)
    assert not isinstance(js, slipstream.sync.Connection)
    js.create_stream(name=name, subjects=[name], storage="memory")
    js.publish(name)
    (message,) = js.stream(name).create_consumer(durable_name="c").fetch_no_wait(1)
    assert isinstance(message, slipstream.sync.JetStreamMessage)
    assert isinstance(message, slipstream.sync.Message)
    assert slipstream.sync.KeyValue[int] is slipstream.sync.KeyValue
    assert {getattr(slipstream.sync, one).__name__ for one in CLASSES} >= CLASSES.keys() - {
        "Connection"  # which has another name, too
    }
    with pytest.raises(AttributeError, match=r"slipstream\.sync.*no attribute 'Strem'"):
        slipstream.sync.Strem  # noqa: B018
    js.delete_stream(name)


def test_every_class_that_has_something_to_await_is_known_to_type_checkers() -> None:
    """Those that callers get; the others are in modules that are the client's own."""
    faces = ("", "jetstream", "kv", "object_store", "services")
    modules = [import_module(".".join(["slipstream.client", face]).rstrip(".")) for face in faces]
    shown = {
        kind
        for module in modules
        for name in module.__all__
        if isinstance(kind := getattr(module, name), type)
    }
    assert {kind.__name__ for kind in shown if needs_facade(kind)} <= CLASSES.keys() | {"Sink"}


def test_what_may_be_set_is_set_and_handles_need_no_await(nc: Any, name: str) -> None:
    js = nc.jetstream()
    js.timeout = 3
    assert js.timeout == 3
    with pytest.raises(AttributeError):
        js.time_out = 3
    stream = js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    js.publish(f"{name}.a", "one")
    assert list(stream.subjects()) == [(f"{name}.a", 1)]
    assert js.stream_handle(name).get_message(1).data == b"one"
    consumer = stream.get_or_create_consumer(name="c")
    (message,) = consumer.fetch_no_wait(5)
    message.in_progress_sync()
    ordered = stream.ordered_consumer()
    assert len(ordered.fetch_no_wait(5)) == 1
    assert ordered.info().config.ack_policy == "none"
    stream.delete()


def test_streams_and_consumers_work_without_await(nc: Any, name: str) -> None:
    js = nc.jetstream()
    stream = js.create_stream(name=name, subjects=[f"{name}.>"])
    for i in range(5):
        ack = js.publish(f"{name}.{i}", str(i))
    assert (ack.stream, ack.sequence) == (name, 5)
    future = js.publish_async(f"{name}.5", b"5")
    assert future.result(timeout=5).sequence == 6
    assert future.done()
    js.publish_async_complete()
    consumer = stream.create_consumer(durable_name="c")
    batch = consumer.fetch(4, timeout=5)
    assert len(batch) == 4
    assert [message.data for message in batch] == [b"0", b"1", b"2", b"3"]
    for message in batch:
        message.ack()
    with consumer.messages() as messages:
        message = next(iter(messages))
        assert message.data == b"4"
        message.ack_sync()
    assert list(js.stream_names(subject=f"{name}.>")) == [name]
    js.delete_stream(name)
    with pytest.raises(StreamNotFoundError):
        js.stream(name)


def test_key_value_object_store_and_scan_are_there_too(nc: Any, name: str) -> None:
    js = nc.jetstream()
    kv = js.create_key_value(name)
    revision = kv.put("a", b"1")
    assert kv.get("a").value == b"1"
    kv.update("a", b"2", revision)
    with kv.watch() as watch:
        assert [entry and entry.value for entry in islice(watch, 2)] == [b"2", None]
    with pytest.raises(KeyNotFoundError):
        kv.get("b")
    assert [batch.num_rows for batch in js.stream(f"KV_{name}").scan()] == [1]
    store = js.create_object_store(name)
    done: list[int] = []
    store.put("x", b"x" * 300_000, progress=lambda sent, _: done.append(sent))
    with store.open("x") as reader:
        assert sum(len(chunk) for chunk in reader) == 300_000
    assert [info.name for info in store.list()] == ["x"]
    js.delete_object_store(name)
    js.delete_key_value(name)
    assert done[-1:] == [300_000]


def test_many_threads_may_share_a_connection(nc: Any, name: str) -> None:
    nc.subscribe(name, handler=lambda message: message.respond(message.data))
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda i: nc.request(name, str(i), timeout=5).data, range(40))
    assert list(answers) == [str(i).encode() for i in range(40)]


def test_closing_ends_the_thread_and_what_comes_after_is_told_so(server_url: str) -> None:
    before = threading.active_count()
    nc: Any = slipstream.sync.connect(server_url)
    js = nc.jetstream()
    nc.close()
    assert threading.active_count() <= before
    with pytest.raises(slipstream.Error, match="closed"):
        js.publish("a", b"")
    with slipstream.sync.connect(server_url) as drained:
        drained.drain()


def test_a_server_that_is_not_there_is_an_error_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(slipstream.Error):
        slipstream.sync.connect("nats://127.0.0.1:1", connect_timeout=1)
    assert threading.active_count() <= before


def test_plain_data_stays_what_it_is(nc: Any) -> None:
    assert isinstance(nc.max_payload, int)
    assert nc.is_connected is True
    assert nc.status is Status.CONNECTED
    assert type(nc.stats).__name__ == "Statistics"
    assert "request" in dir(nc)
    assert repr(nc).startswith("<sync ")
    assert not needs_facade(str)


def test_a_function_whose_answer_counts_is_asked_at_once(nc: Any, name: str) -> None:
    def answer(message: Any) -> None:
        for part in (b"1", b"2", b"", b"3"):
            message.respond(part)

    def is_last(message: Any) -> bool:
        assert isinstance(message, slipstream.sync.Message)
        return not message.data

    nc.subscribe(name, handler=answer)
    parts = nc.request_many(name, timeout=5, sentinel=is_last)
    assert [part.data for part in parts] == [b"1", b"2"]


def test_what_an_iterator_does_to_find_its_next_item_may_use_the_connection(
    nc: Any, name: str
) -> None:
    js = nc.jetstream()
    nc.subscribe(name, handler=lambda message: message.respond(message.data * 1000))
    store = js.create_object_store(name)
    store.put("x", (nc.request(name, str(i), timeout=5).data for i in range(3)))
    assert store.get("x") == b"0" * 1000 + b"1" * 1000 + b"2" * 1000
    js.delete_object_store(name)


def test_an_object_goes_from_one_store_to_another(nc: Any, name: str) -> None:
    js = nc.jetstream()
    store, other = js.create_object_store(name), js.create_object_store(f"{name}_2")
    store.put("x", b"x" * 300_000)
    with store.open("x") as reader:
        assert other.put("x", reader).size == 300_000
    assert other.put("y", iter(store.open("x"))).digest == store.info("x").digest
    other.add_bucket_link("all", store)
    for bucket in (name, f"{name}_2"):
        js.delete_object_store(bucket)


def test_what_is_still_to_come_can_tell_when_it_has(nc: Any, name: str) -> None:
    js = nc.jetstream()
    js.create_stream(name=name, subjects=[name])
    told: queue.Queue[Any] = queue.Queue()
    js.publish_async(name, b"1").add_done_callback(told.put)
    assert told.get(timeout=5).result(timedelta(seconds=5)).sequence == 1
    wrong = js.publish_async(name, b"2", expected_last_sequence=7)
    assert isinstance(wrong.exception(timeout=5), WrongLastSequenceError)
    assert js.publish_async(name, b"3").exception(timeout=5) is None
    js.delete_stream(name)


def test_every_option_that_is_asked_at_once_is_known_as_such() -> None:
    hints = {name: str(hint) for name, hint in ConnectOptions.__annotations__.items()}
    functions = {name: hint for name, hint in hints.items() if "Callable[" in hint}
    for name, hint in functions.items():
        is_awaited = "Awaitable[" in hint or hint.endswith(
            ("], typing.Any] | None", "], Any] | None")
        )
        assert is_awaited != (name in ANSWERED_AT_ONCE), (name, hint)


def test_a_token_and_a_wait_may_be_functions(server_url: str) -> None:
    asked: list[str] = []

    def token() -> str:
        asked.append("token")
        return "secret"

    options: dict[str, Any] = {"token": token, "reconnect_delay": lambda _: 0.01}
    with slipstream.sync.connect(server_url, **options) as nc:
        nc.reconnect()
        assert nc.is_connected
    assert asked == ["token"] * 2


def test_a_service_tells_its_end_and_spans_surround_what_a_script_does(server_url: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    told: queue.Queue[str] = queue.Queue()
    with slipstream.sync.connect(server_url, tracer_provider=provider) as nc:
        subject = "s" + nc.new_id()
        service = nc.add_service("told", "1.0.0", on_stop=lambda ended: told.put(ended.name))
        service.stop()
        assert told.get(timeout=5) == "told"
        subscription = nc.subscribe(subject, type=int)
        nc.publish(subject, 17)
        message = subscription.next(5)
        assert message.value == 17
        with nc.processing(message):
            nc.publish(subject + ".next")
    names = {span.name for span in exporter.get_finished_spans()}
    assert f"{subject} process" in names


def test_functions_and_iterators_that_are_done_with_leave_no_thread(nc: Any, name: str) -> None:
    js = nc.jetstream()
    store = js.create_object_store(name)
    before = threading.active_count()
    for number in range(20):
        store.put("x", (b"1" for _ in range(3)), progress=lambda sent, _: None)
        js.publish_async(f"$O.{name}.C.{number}", b"").add_done_callback(lambda _: None)
    js.publish_async_complete()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before + 4  # the loop's own for files, and one that tells
    js.delete_object_store(name)


def test_threads_may_close_a_connection_under_each_other(server_url: str) -> None:
    def close(nc: Any) -> str:
        nc.close()
        return "closed"

    def use(nc: Any) -> str:
        try:
            while True:
                nc.flush()
        except slipstream.Error:
            return "told"

    with ThreadPoolExecutor(6) as threads:
        for _ in range(10):
            nc = slipstream.sync.connect(server_url)
            at_work = [threads.submit(work, nc) for work in (use, use, use, close, close, close)]
            said = [work.result(30) for work in at_work]
            assert said == ["told"] * 3 + ["closed"] * 3
