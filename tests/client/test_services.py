"""Services (ADR-32): endpoints that answer, are found, described and measured."""

import asyncio
import json
from collections.abc import Callable

import msgspec
import pytest

import slipstream
from slipstream.client import PermissionsError
from slipstream.client.services import Service, ServiceError, ServiceRequest
from slipstream.errors import ConfigError
from tests.client.own_server import OwnServer


async def test_what_a_handler_returns_is_the_answer(nc: slipstream.Connection) -> None:
    prefix = nc.new_id()

    async def slowly(request: ServiceRequest) -> str:
        await asyncio.sleep(0)
        return request.data.decode().upper()

    async with await nc.add_service("text", "1.0.0") as service:
        group = service.add_group(prefix)
        await group.add_endpoint("double", lambda request: request.data * 2)
        await group.add_endpoint("upper", slowly, subject="up.*")
        assert (await nc.request(f"{prefix}.double", b"ab")).data == b"abab"
        assert (await nc.request(f"{prefix}.up.x", b"ab")).data == b"AB"


async def test_an_error_is_an_answer_with_code_and_description(
    nc: slipstream.Connection,
) -> None:
    def refuse(request: ServiceRequest) -> None:
        raise ServiceError(404, "no such order", b"details")

    async def choose(request: ServiceRequest) -> None:
        await request.respond_error(409, "taken", headers={"Hint": "later"})

    def fail(request: ServiceRequest) -> bytes:
        raise ZeroDivisionError("oops")

    async with await nc.add_service("orders", "1.0.0") as service:
        group = service.add_group(nc.new_id())
        endpoints = [
            await group.add_endpoint("refuse", refuse),
            await group.add_endpoint("choose", choose),
            await group.add_endpoint("fail", fail),
        ]
        answers = [await nc.request(endpoint.subject) for endpoint in endpoints]
        errors = [ServiceError.of(answer) for answer in answers]
        assert [(e.code, e.description) for e in errors if e] == [
            (404, "no such order"),
            (409, "taken"),
            (500, "oops"),
        ]
        assert answers[0].data == b"details"
        assert answers[1].header("Hint") == "later"
        stats = service.stats().endpoints
        assert [(s.num_requests, s.num_errors, s.last_error) for s in stats] == [
            (1, 1, "404:no such order"),
            (1, 1, "409:taken"),
            (1, 1, "500:oops"),
        ]


async def test_services_are_found_by_name_and_by_id(nc: slipstream.Connection) -> None:
    name = f"found-{nc.new_id()}"
    options = {"description": "for tests", "metadata": {"a": "b"}}
    first = await nc.add_service(name, "1.2.3", **options)
    second = await nc.add_service(name, "1.2.4-rc.1+b")
    await first.add_endpoint("e", lambda r: b"", subject=f"{name}.e", metadata={"k": "v"})
    pings = {p.id: p async for p in nc.services.ping(name)}
    assert {p.version for p in pings.values()} == {"1.2.3", "1.2.4-rc.1+b"}
    infos = [i async for i in nc.services.info(name, first.id)]
    assert [(i.description, i.metadata) for i in infos] == [("for tests", {"a": "b"})]
    endpoint = infos[0].endpoints[0]
    assert (endpoint.name, endpoint.subject, endpoint.queue_group) == ("e", f"{name}.e", "q")
    assert endpoint.metadata == {"k": "v"}
    await first.stop()
    assert [p.id async for p in nc.services.ping(name)] == [second.id]
    await second.stop()
    assert [p async for p in nc.services.ping(name)] == []


async def test_statistics_count_and_can_be_reset(nc: slipstream.Connection) -> None:
    name = f"counted-{nc.new_id()}"
    async with await nc.add_service(name, "1.0.0") as service:
        endpoint = await service.add_endpoint(
            "e", lambda r: b"x", subject=nc.new_inbox(), stats_data=lambda e: {"of": e.name}
        )
        for _ in range(3):
            await nc.request(endpoint.subject)
        raw = json.loads((await nc.request(f"$SRV.STATS.{name}.{service.id}")).data)
        assert raw["type"] == "io.nats.micro.v1.stats_response"
        counted = raw["endpoints"][0]
        assert (counted["num_requests"], counted["num_errors"], counted["last_error"]) == (3, 0, "")
        assert counted["processing_time"] >= counted["average_processing_time"] * 3 > 0
        spent = endpoint.stats()
        assert spent.processing_time == counted["processing_time"] / 1e9
        assert spent.average_processing_time == counted["average_processing_time"] / 1e9
        assert 0 < spent.processing_time < 60
        assert counted["data"] == {"of": "e"}
        service.reset()
        found = [s async for s in nc.services.stats(name)]
        assert found[0].endpoints[0].num_requests == 0
        assert found[0].started > raw["started"]


async def test_queue_groups_are_inherited_overridden_or_none(
    nc: slipstream.Connection,
) -> None:
    async with await nc.add_service("queues", "1.0.0", queue_group="mine") as service:
        inner = service.add_group("a").add_group("b", queue_group="theirs")
        alone = service.add_group("c", queue_group=None)
        endpoints = [
            await service.add_endpoint("one", lambda r: b""),
            await inner.add_endpoint("two", lambda r: b""),
            await alone.add_endpoint("three", lambda r: b""),
            await alone.add_endpoint("four", lambda r: b"", queue_group="own"),
        ]
        assert [(e.subject, e.info.queue_group) for e in endpoints] == [
            ("one", "mine"),
            ("a.b.two", "theirs"),
            ("c.three", ""),
            ("c.four", "own"),
        ]


async def test_instances_share_the_requests(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    services = [await nc.add_service("shared", "1.0.0") for _ in range(2)]
    for service in services:
        await service.add_endpoint("e", lambda r: b"", subject=subject)
    for _ in range(40):
        await nc.request(subject)
    counts = [service.stats().endpoints[0].num_requests for service in services]
    assert sum(counts) == 40
    assert all(counts)
    for service in services:
        await service.stop()


async def test_requests_can_be_handled_at_the_same_time(nc: slipstream.Connection) -> None:
    both = asyncio.Barrier(2)

    async def together(request: ServiceRequest) -> bytes:
        await both.wait()
        return b"met"

    async with await nc.add_service("pair", "1.0.0") as service:
        endpoint = await service.add_endpoint("e", together, subject=nc.new_inbox(), concurrency=2)
        answers = await asyncio.gather(*(nc.request(endpoint.subject) for _ in range(2)))
        assert [answer.data for answer in answers] == [b"met", b"met"]


async def test_stopping_answers_what_has_come(nc: slipstream.Connection) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: ServiceRequest) -> bytes:
        begun.set()
        await go_on.wait()
        return b"done"

    service = await nc.add_service("stops", "1.0.0")
    endpoint = await service.add_endpoint("e", wait, subject=nc.new_inbox())
    requests = [asyncio.create_task(nc.request(endpoint.subject)) for _ in range(3)]
    await begun.wait()
    stopping = asyncio.create_task(service.stop())
    await nc.flush()
    go_on.set()
    await stopping
    assert [(await request).data for request in requests] == [b"done"] * 3
    assert service.stopped
    with pytest.raises(slipstream.Error, match="stopped"):
        await service.add_endpoint("late", wait)


@pytest.mark.parametrize(("name", "version"), [("a b", "1.0.0"), ("", "1.0.0"), ("a", "1.0")])
async def test_wrong_names_and_versions_are_refused(
    nc: slipstream.Connection, name: str, version: str
) -> None:
    with pytest.raises(ConfigError, match="service"):
        await nc.add_service(name, version)


async def test_wrong_endpoints_are_refused(nc: slipstream.Connection) -> None:
    async with await nc.add_service("strict", "1.0.0") as service:
        with pytest.raises(ConfigError, match="endpoint"):
            await service.add_endpoint("a.b", lambda r: b"")
        with pytest.raises(ValueError, match="empty token"):
            service.add_group("a..b")


async def test_a_service_tells_of_its_end_and_of_what_no_answer_could(
    make_server: Callable[[str], OwnServer],
) -> None:
    server = make_server(
        "authorization { users: [ { user: a, password: b, "
        'permissions: { subscribe: { deny: "forbidden.>" } } } ] }'
    )
    stopped: list[str] = []
    refused: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def broken_too(service: Service) -> None:
        stopped.append(service.name)
        raise ZeroDivisionError

    async with await slipstream.connect(server.url, user="a", password="b") as nc:
        service = await nc.add_service(
            "told",
            "1.0.0",
            on_stop=broken_too,
            on_error=lambda _, error: refused.set_result(error),
            stats_data=lambda endpoint: {"of": endpoint.name},
        )
        await service.add_endpoint("mine", lambda request: b"", subject="forbidden.mine")
        assert isinstance(await asyncio.wait_for(refused, 5), PermissionsError)
        assert service.stats().endpoints[0].data == {"of": "mine"}
        await service.stop()
        await service.stop()
        assert stopped == ["told"]


async def test_a_service_that_is_cut_off_tells_of_its_end_too(server_url: str) -> None:
    stopped: list[str] = []
    nc = await slipstream.connect(server_url)
    await nc.add_service("cut", "1.0.0", on_stop=lambda service: stopped.append(service.name))
    await nc.close()
    assert stopped == ["cut"]


async def test_an_endpoint_keeps_only_so_many_requests_waiting(nc: slipstream.Connection) -> None:
    go_on = asyncio.Event()

    async def slow(request: ServiceRequest) -> bytes:
        await go_on.wait()
        return b"done"

    name = "s" + nc.new_id()
    async with await nc.add_service(name, "1.0.0") as service:
        await service.add_endpoint(name, slow, max_messages_pending=2)
        for _ in range(9):
            await nc.publish(name, reply=nc.new_inbox())
        await nc.flush()
        assert nc.stats.dropped >= 6
        go_on.set()


async def test_what_services_in_go_say_of_nothing_is_nothing(nc: slipstream.Connection) -> None:
    said = {
        "name": "echo", "id": "x", "version": "1.0.0", "metadata": None,
        "endpoints": [{"name": "e", "subject": "e", "metadata": None}],
    }  # fmt: skip

    async def answer(message: slipstream.Message) -> None:
        await message.respond(msgspec.json.encode(said))

    await nc.subscribe("$SRV.INFO", handler=answer)
    (found,) = [one async for one in nc.services.info()]
    assert found.metadata == {}
    assert found.endpoints[0].metadata == {}
