"""What a handler raises is in the log once, with its traceback, no matter who else hears of it."""

import logging

import pytest

import slipstream
import slipstream.sync
from slipstream.client.events import ErrorEvent, Event
from slipstream.client.services import ServiceRequest
from tests.client.waiting import until


def fails(_: object) -> None:
    raise ZeroDivisionError("planted")


def logged(caplog: pytest.LogCaptureFixture) -> list[bool]:
    """For each warning or worse, whether it has the traceback."""
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [bool(record.exc_info) for record in found]


async def test_of_a_subscription(
    nc: slipstream.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    subscription = await nc.subscribe(nc.new_inbox(), handler=fails)
    await nc.publish(subscription.subject)
    await until(lambda: isinstance(nc.last_error, ZeroDivisionError))
    assert logged(caplog) == [True]


async def test_of_a_subscription_that_an_event_reports_too(
    nc: slipstream.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    nc.on("error", heard.append)
    subscription = await nc.subscribe(nc.new_inbox(), handler=fails)
    await nc.publish(subscription.subject)
    await until(lambda: bool(heard))
    assert isinstance(heard[0], ErrorEvent)
    assert logged(caplog) == [True]


@pytest.mark.parametrize("is_told", [False, True])
async def test_of_a_consumer(
    nc: slipstream.Connection, caplog: pytest.LogCaptureFixture, is_told: bool
) -> None:
    name, told = nc.new_id(), list[Exception]()
    js = nc.jetstream()
    stream = await js.create_stream(name=name, subjects=[name], storage="memory")
    consumer = await stream.create_consumer(durable_name="c")
    await js.publish(name)
    async with consumer.consume(fails, on_error=told.append if is_told else None):
        await until(lambda: bool(logged(caplog)))
    assert logged(caplog) == [True]
    assert len(told) == is_told
    await stream.delete()


async def test_of_an_endpoint(nc: slipstream.Connection, caplog: pytest.LogCaptureFixture) -> None:
    async def root(request: ServiceRequest) -> bytes:
        return b"%d" % (1 // int(request.data))

    async with await nc.add_service("root", "1.0.0") as service:
        endpoint = await service.add_endpoint("root", root, subject=nc.new_inbox())
        assert (await nc.request(endpoint.subject, b"0")).header("Nats-Service-Error-Code") == "500"
    assert logged(caplog) == [True]


def test_without_await(server_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with slipstream.sync.connect(server_url) as nc:
        subscription = nc.subscribe(nc.new_inbox(), handler=fails)
        nc.publish(subscription.subject)
        nc.flush()
        subscription.drain()
    assert logged(caplog) == [True]
