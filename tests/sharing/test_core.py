"""Streams and services of another account: messages, requests, answers and groups."""

import asyncio
import json
from pathlib import Path

import pytest

import slipstream
from tests.leaf.servers import until
from tests.sharing.servers import KINDS, accounts, connect, server

pytestmark = pytest.mark.parametrize("kind", KINDS)

ACCOUNTS = accounts(
    exports="""
        { stream: "news.>" }, { stream: "pair.*.*" }, { stream: "work" },
        { service: "help" }, { service: "swap.*.*" }, { service: "private", accounts: [IMPORTER] },
        { service: "many", response_type: stream, threshold: "10s" }
        { service: "parts", response_type: chunked }
        { service: "nobody" }
    """,
    imports="""
        { stream: { account: EXPORTER, subject: "news.>" }, prefix: "e" }
        { stream: { account: EXPORTER, subject: "pair.*.*" }, to: "turned.$2.$1" }
        { stream: { account: EXPORTER, subject: "work" } }
        { service: { account: EXPORTER, subject: "help" }, to: "get.help" }
        { service: { account: EXPORTER, subject: "swap.*.*" }, to: "swapped.$2.$1", share: true }
        { service: { account: EXPORTER, subject: "private" } }
        { service: { account: EXPORTER, subject: "many" } }
        { service: { account: EXPORTER, subject: "parts" } }
        { service: { account: EXPORTER, subject: "nobody" }, to: "is.nobody" }
        """,
    more="""
        THIRD {
          users: [ { user: t, password: p } ]
          imports: [
            { service: { account: IMPORTER, subject: "get.help" }, to: "chain.help" }
            { stream: { account: IMPORTER, subject: "e.news.>" } }
          ]
        }
    """,
).replace("imports: [", "exports: [ { service: 'get.help' }, { stream: 'e.>' } ]\nimports: [", 1)


async def told(connection: slipstream.Connection) -> list[slipstream.Message]:
    """What a service in the exporting account is asked, as it comes."""
    found: list[slipstream.Message] = []

    async def note(message: slipstream.Message) -> None:
        found.append(message)

    for subject in ("help", "swap.>", "private", "many", "parts"):
        await connection.subscribe(subject, handler=note)
    await connection.flush()
    return found


async def test_messages_reach_the_importing_account_under_its_names(
    kind: str, tmp_path: Path
) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        wide = await other.subscribe("e.>")
        narrow = await other.subscribe("e.news.*")
        turned = await other.subscribe("turned.*.a")
        await other.flush()
        await owner.publish("news.one", b"1", reply="back", headers={"A": "b"})
        await owner.publish("pair.a.b", b"2")
        await owner.publish("pair.b.a", b"3")
        await owner.publish("other", b"4")
        await owner.flush()
        for subscription in (wide, narrow):
            message = await subscription.next(timeout=10)
            assert (message.subject, message.data) == ("e.news.one", b"1")
            assert (message.reply, message.headers["A"]) == ("back", "b")
        message = await turned.next(timeout=10)
        assert (message.subject, message.data) == ("turned.b.a", b"2")
        await other.publish("news.two", b"stays here")
        await other.publish("e.news.two", b"own")
        assert (await wide.next(timeout=10)).data == b"own"


async def test_who_unsubscribes_is_sent_nothing_more(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        first = await other.subscribe("e.news.a")
        second = await other.subscribe("e.news.b")
        await first.unsubscribe()
        await other.flush()
        third = await other.subscribe("e.news.a")
        await other.flush()
        await owner.publish("news.a", b"")
        await owner.publish("news.b", b"")
        assert (await second.next(timeout=10)).subject == "e.news.b"
        assert (await third.next(timeout=10)).subject == "e.news.a"
        shown = await node.monitor("/connz?state=open")
        [mine] = [each for each in shown["connections"] if each["out_msgs"]]
        assert mine["out_msgs"] == 2


async def test_members_of_a_group_share_over_accounts(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        counts = {"e": 0, "i": 0}

        def member(name: str) -> object:
            async def count(message: slipstream.Message) -> None:
                counts[name] += 1

            return count

        await owner.subscribe("work", queue="q", handler=member("e"))
        await other.subscribe("work", queue="q", handler=member("i"))
        await owner.flush()
        await other.flush()
        for _ in range(200):
            await owner.publish("work", b"")
        await until(lambda: _is(sum(counts.values()) == 200))
        assert min(counts.values()) > 0


async def _is(found: bool) -> bool:
    return found


async def test_a_request_is_answered_in_the_other_account(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i", name="asker") as other,
    ):
        asked = await told(owner)
        waiting = asyncio.create_task(other.request("get.help", b"?", headers={"A": "b"}))
        await until(lambda: _is(bool(asked)))
        request = asked.pop()
        assert request.subject == "help"
        assert request.reply.startswith("_R_.")
        info = json.loads(request.headers["Nats-Request-Info"])
        assert (info["acc"], set(info) - {"rtt"}) == ("IMPORTER", {"acc"})
        assert request.headers["A"] == "b"
        await owner.publish(request.reply, b"answer")
        await owner.publish(request.reply, b"too many")
        assert (await waiting).data == b"answer"
        waiting = asyncio.create_task(other.request("swapped.x.y", b"", timeout=10))
        await until(lambda: _is(bool(asked)))
        request = asked.pop()
        assert request.subject == "swap.y.x"
        info = json.loads(request.headers["Nats-Request-Info"])
        info.pop("rtt", None)
        assert {name: info[name] for name in ("acc", "user", "name", "kind", "client_type")} == {
            "acc": "IMPORTER",
            "user": "i",
            "name": "asker",
            "kind": "Client",
            "client_type": "nats",
        }
        assert set(info) >= {"start", "host", "id", "lang", "ver", "server"}
        await owner.publish(request.reply, b"swapped")
        assert (await waiting).data == b"swapped"


async def test_who_asks_cannot_pretend_to_be_somebody_else(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        asked = await told(owner)
        forged = {"Nats-Request-Info": '{"acc":"EXPORTER"}', "B": "c"}
        await other.publish("get.help", b"", headers=forged)
        await until(lambda: _is(bool(asked)))
        [info] = asked[0].headers.get_all("Nats-Request-Info")
        assert json.loads(info)["acc"] == "IMPORTER"
        assert asked[0].headers["B"] == "c"


async def test_an_export_says_how_many_answers_there_are(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        asked = await told(owner)
        expected = {"private": [b"1"], "many": [b"1", b"2", b""], "parts": [b"1", b"2", b""]}
        for subject, answers in expected.items():
            inbox = await other.subscribe(f"in.{subject}")
            await other.publish(subject, b"", reply=f"in.{subject}")
            await until(lambda: _is(bool(asked)))
            reply = asked.pop().reply
            for body in (b"1", b"2", b"", b"after the end"):
                await owner.publish(reply, body)
            await owner.flush()
            await other.publish(f"in.{subject}", b"own")
            bodies = []
            while not bodies or bodies[-1] != b"own":
                bodies.append((await inbox.next(timeout=10)).data)
            assert bodies == [*answers, b"own"]


async def test_a_request_that_nobody_answers_is_told_so(kind: str, tmp_path: Path) -> None:
    async with server(kind, tmp_path, ACCOUNTS) as node, await connect(node, "i") as other:
        with pytest.raises(slipstream.NoRespondersError):
            await other.request("is.nobody", b"", timeout=10)
        with pytest.raises(slipstream.NoRespondersError):
            await other.request("help", b"", timeout=10)  # not its name here


async def test_an_imported_service_can_be_imported_again(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "t") as third,
    ):
        asked = await told(owner)
        waiting = asyncio.create_task(third.request("chain.help", b"", timeout=10))
        await until(lambda: _is(bool(asked)))
        info = json.loads(asked[0].headers["Nats-Request-Info"])
        assert (info["acc"], info["svc"]) == ("THIRD", "IMPORTER")
        await owner.publish(asked[0].reply, b"far")
        assert (await waiting).data == b"far"


async def test_an_imported_stream_goes_to_no_third_account(kind: str, tmp_path: Path) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
        await connect(node, "t") as third,
    ):
        far = await third.subscribe("e.news.>")
        await third.flush()
        await owner.publish("news.a", b"")
        await owner.flush()
        await other.publish("e.news.b", b"")
        assert (await far.next(timeout=10)).subject == "e.news.b"


async def test_a_stream_of_the_importing_account_stores_what_comes(
    kind: str, tmp_path: Path
) -> None:
    async with (
        server(kind, tmp_path, ACCOUNTS) as node,
        await connect(node, "e") as owner,
        await connect(node, "i") as other,
    ):
        stream = await other.jetstream().create_stream(name="N", subjects=["e.news.>"])
        for number in range(20):
            await owner.publish(f"news.{number}", b"%d" % number)
        await owner.flush()

        async def is_stored() -> bool:
            return bool((await stream.info()).state.messages == 20)

        await until(is_stored)
        assert (await stream.get_message(20)).subject == "e.news.19"


async def test_monitoring_shows_what_is_exported_and_imported(kind: str, tmp_path: Path) -> None:
    async with server(kind, tmp_path, ACCOUNTS) as node:
        detail = (await node.monitor("/accountz?acc=EXPORTER"))["account_detail"]
        exports = {each["subject"]: each for each in detail["exports"]}
        assert exports["many"] == {
            "subject": "many",
            "type": "service",
            "response_type": "Streamed",
        }
        assert exports["news.>"] == {"subject": "news.>", "type": "stream"}
        assert exports["private"]["approved_accounts"] == ["IMPORTER"]
        detail = (await node.monitor("/accountz?acc=IMPORTER"))["account_detail"]
        imports = {each["local_subject"]: each for each in detail["imports"]}
        assert imports["turned.*.*"] == {
            "subject": "pair.*.*",
            "account": "EXPORTER",
            "local_subject": "turned.*.*",
            "type": "stream",
            "invalid": False,
            "share": False,
            "tracking": False,
        }
        assert imports["swapped.*.*"] == {
            "subject": "swap.*.*",
            "account": "EXPORTER",
            "to": "swapped.*.*",
            "local_subject": "swapped.*.*",
            "type": "service",
            "invalid": False,
            "share": True,
            "tracking": False,
        }
