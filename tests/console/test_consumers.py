"""Consumers in the console: the list, why one is silent, pausing, resetting, dead letters."""

from typing import Any

import pytest

import slipstream
import slipstream.sync
from slipstream.client.jetstream.errors import ConsumerNotFoundError
from tests.console.conftest import Console, MakeConsole


@pytest.fixture
def stream(js: Any, name: str) -> str:
    """A stream with ten messages, and a consumer that has five of them out."""
    js.create_stream(name=name, subjects=[name])
    for number in range(10):
        js.publish(name, str(number))
    consumer = js.create_consumer(name, durable_name="billing", max_ack_pending=5)
    assert len(list(consumer.fetch(5, timeout=5))) == 5
    return name


def test_a_consumer_says_why_it_is_silent(console: Console, stream: str) -> None:
    page = console.get(f"/streams/{stream}/consumers/billing")
    assert "Why it is silent" in page
    assert "All 5 messages that may be out for acknowledgement are out" in page


def test_the_consumers_of_a_stream_come_in_pages(console: Console, js: Any, stream: str) -> None:
    for number in range(60):
        js.create_consumer(stream, durable_name=f"worker-{number:02}")
    address = f"/streams/{stream}/consumers"
    page = console.get(address)
    assert "1 to 50 of 61 consumers" in page
    assert "51 to 61 of 61" in console.get(f"{address}?at=50")
    assert "1 to 10 of 10 consumers" in console.get(f"{address}?q=worker-3")
    assert "No consumer matches" in console.get(f"{address}?q=nobody")


def test_all_consumers_are_listed_with_their_lag(console: Console, stream: str) -> None:
    page = console.get(f"/consumers?q={stream}")
    assert f"/streams/{stream}/consumers/billing" in page
    assert "waits for acks" in page


def test_the_overview_names_a_consumer_that_waits(tmp_path: Any, make_console: MakeConsole) -> None:
    with slipstream.Server(store_dir=str(tmp_path)) as server:
        console = make_console(server.url)
        assert "Nothing: streams have room" in console.get("/")
        with slipstream.sync.connect(server.url) as nc:
            js = nc.jetstream()
            js.create_stream(name="S", subjects=["s"])
            js.publish("s", b"1")
            consumer = js.create_consumer("S", durable_name="c", max_ack_pending=1)
            assert len(list(consumer.fetch(1, timeout=5))) == 1
        console.post("/streams/S/publish", subject="s", body="2")
        page = console.get("/")
        assert "Consumer c of S waits for acknowledgements" in page


def test_a_consumer_is_paused_and_resumed(console: Console, js: Any, stream: str) -> None:
    address = f"/streams/{stream}/consumers/billing"
    assert console.post(f"{address}/pause", **{"for": "15m"}) == address
    assert js.consumer_info(stream, "billing").paused
    assert "Resume" in console.get(address)
    console.post(f"{address}/resume")
    assert not js.consumer_info(stream, "billing").paused
    assert "no duration" in console.post(f"{address}/pause", status=400, **{"for": "a while"})


def test_a_consumer_is_reset_to_a_sequence_or_a_time(
    console: Console, js: Any, stream: str
) -> None:
    address = f"/streams/{stream}/consumers/billing/reset"
    console.post(address, status=400, confirm="", to="8")
    console.post(address, confirm="billing", to="8")
    consumer = js.consumer(stream, "billing")
    assert [message.data for message in consumer.fetch(3, timeout=5)] == [b"7", b"8", b"9"]
    console.post(address, confirm="billing", to="1h")
    assert [message.data for message in consumer.fetch(1, timeout=5)] == [b"0"]
    said = console.post(address, status=400, confirm="billing", to="2999-01-01")
    assert "Nothing was stored" in said


def test_deleting_a_consumer_wants_its_name_typed(console: Console, js: Any, stream: str) -> None:
    address = f"/streams/{stream}/consumers/billing/delete"
    console.post(address, status=400, confirm="bill")
    assert console.post(address, confirm="billing") == f"/streams/{stream}/consumers"
    with pytest.raises(ConsumerNotFoundError):
        js.consumer_info(stream, "billing")


def test_a_stored_dead_letter_is_listed_and_sent_again(
    own_url: str, make_console: MakeConsole, name: str
) -> None:
    console = make_console(own_url)
    with slipstream.sync.connect(own_url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name])
        js.create_stream(name=f"{name}-dead", subjects=[f"dead.{name}"])
        js.publish(name, b"poison", headers={"Nats-Msg-Id": "1", "Kind": "order"})
        consumer = js.create_consumer(name, durable_name="c", dead_letter=f"dead.{name}")
        consumer.next(timeout=5).term_sync("no <such> customer")
        address = f"/streams/{name}/consumers/c"
        page = console.get(address)
        assert f"1 message under dead.{name}" in page
        assert "no &lt;such&gt; customer" in page
        console.post(f"{address}/dead/1")
        again = js.stream(name).get_message(2)
        assert (again.data, again.headers["Kind"]) == (b"poison", "order")
        assert list(consumer.dead_letters()) == []
        assert "no message found" in console.post(f"{address}/dead/2", status=404)
        js.delete_stream(f"{name}-dead")
        assert "Dead letters" in console.get(address)


def test_a_dead_letter_is_sent_again(own_url: str, make_console: MakeConsole, name: str) -> None:
    console = make_console(own_url)
    with slipstream.sync.connect(own_url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name], duplicate_window=60)
        js.publish(name, b"poison", headers={"Nats-Msg-Id": "1", "Kind": "order"})
        consumer = js.create_consumer(name, durable_name="c", max_deliver=2)
        for _ in range(2):
            (message,) = consumer.fetch(1, timeout=5)
            message.nak()
        assert list(consumer.fetch_no_wait(1)) == []  # the server has heard of both
        address = f"/streams/{name}/consumers/c"
        page = console.get(address)
        assert "1 message used up their 2 deliveries" in page
        console.post(f"{address}/again/1")
        again = js.stream(name).get_message(2)
        assert again.data == b"poison"
        assert dict(again.headers.items()) == {"Kind": ["order"]}
