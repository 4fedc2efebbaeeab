"""Messages, requests and queue groups over a leaf node connection, both ways."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.engine.leaf.compression import LEVELS
from tests.leaf.servers import PAIRS, Node, Pair, linked, make_pair, running, until

pytestmark = pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))


async def knows(node: Node, subject: str, count: int = 1) -> None:
    """Wait until a server knows that the other one is interested in `subject`, `count` times."""

    async def told() -> bool:
        lists = [link.get("subscriptions_list", []) for link in await node.links()]
        return bool(sum(subjects.count(subject) for subjects in lists) >= count)

    await until(told, f"{node.name} is not told of {subject}")


async def carries(pair: Pair, bodies: list[bytes]) -> None:
    """Messages of these bodies go both ways, in order."""
    async with (
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        for here, there, node in ((hub, leaf, pair.hub), (leaf, hub, pair.leaf)):
            got = await there.subscribe("both.ways")
            await there.flush()
            await knows(node, "both.ways")
            for body in bodies:
                await here.publish("both.ways", body, headers={"Size": str(len(body))})
            for body in bodies:
                message = await got.next(timeout=30)
                assert message.data == body
                assert message.headers["Size"] == str(len(body))
            await got.unsubscribe()
            await there.flush()


async def test_a_message_reaches_who_listens_on_the_other_side_once(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with linked(kinds, tmp_path) as pair:
        for here, there in ((pair.hub, pair.leaf), (pair.leaf, pair.hub)):
            async with (
                await slipstream.connect(here.url) as near,
                await slipstream.connect(there.url) as far,
            ):
                one = await far.subscribe("greet.*")
                all_below = await far.subscribe("greet.>")
                await far.flush()
                await knows(here, "greet.*")
                await knows(here, "greet.>")
                await near.publish("greet.joe", b"hello", headers={"A": "b"})
                await near.publish("greet.end", b"x" * 300_000)
                for subscription in (one, all_below):
                    first = await subscription.next(timeout=10)
                    assert (first.subject, first.data) == ("greet.joe", b"hello")
                    assert first.headers["A"] == "b"
                    last = await subscription.next(timeout=10)
                    assert last.data == b"x" * 300_000


async def test_requests_are_answered_over_the_link(kinds: tuple[str, str], tmp_path: Path) -> None:
    async with linked(kinds, tmp_path) as pair:
        for here, there in ((pair.hub, pair.leaf), (pair.leaf, pair.hub)):
            async with (
                await slipstream.connect(here.url) as near,
                await slipstream.connect(there.url) as far,
            ):

                async def answer(message: slipstream.Message) -> None:
                    await message.respond(message.data.upper())

                await far.subscribe("shout", handler=answer)
                await far.flush()
                await knows(here, "shout")
                answers = [await near.request("shout", b"word", timeout=10) for _ in range(20)]
                assert {message.data for message in answers} == {b"WORD"}
                with pytest.raises(slipstream.NoRespondersError):
                    await near.request("nobody.listens", b"")


async def test_one_member_of_a_queue_group_gets_a_message_and_a_near_one_first(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with (
        linked(kinds, tmp_path) as pair,
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        far = [await hub.subscribe("work", queue="crew") for _ in range(2)]
        other = await hub.subscribe("work", queue="others")
        watcher = await hub.subscribe("work")
        await hub.flush()
        await knows(pair.leaf, "work", 3)
        for number in range(40):
            await leaf.publish("work", b"%d" % number)
        await leaf.publish("work", b"end")
        got = await drain_until_end(watcher)
        assert got == [b"%d" % number for number in range(40)]
        assert len(await drain_until_end(other)) == 40
        shares = [subscription.pending for subscription in far]
        assert sum(shares) == 41
        near = await leaf.subscribe("work", queue="crew")
        await leaf.flush()
        for number in range(40):
            await leaf.publish("work", b"%d" % number)
        await leaf.publish("work", b"end")
        assert len(await drain_until_end(near)) == 40
        assert len(await drain_until_end(watcher)) == 40
        assert [subscription.pending for subscription in far] == shares


async def drain_until_end(subscription: Any) -> list[bytes]:
    """What comes before the message that says `end`."""
    found: list[bytes] = []
    while True:
        message = await subscription.next(timeout=10)
        if message.data == b"end":
            return found
        found.append(message.data)


async def test_interest_goes_when_the_subscriber_or_the_other_server_goes(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    async with linked(kinds, tmp_path) as pair:
        leaf = await slipstream.connect(pair.leaf.url)
        subscription = await leaf.subscribe("here")
        await leaf.flush()
        await knows(pair.hub, "here")
        await subscription.unsubscribe()
        await leaf.flush()

        async def forgotten() -> bool:
            return "here" not in (await pair.hub.links())[0]["subscriptions_list"]

        await until(forgotten)
        await leaf.close()
        await pair.leaf.stop()

        async def alone() -> bool:
            return not await pair.hub.links()

        await until(alone)


async def test_a_leaf_finds_its_hub_again(kinds: tuple[str, str], tmp_path: Path) -> None:
    async with linked(kinds, tmp_path) as pair, await slipstream.connect(pair.leaf.url) as leaf:
        subscription = await leaf.subscribe("news")
        await leaf.flush()
        for _ in range(2):
            await pair.hub.stop()
            await pair.hub.start()
            await until(pair.is_linked)
            async with await slipstream.connect(pair.hub.url) as hub:
                await knows(pair.hub, "news")
                await hub.publish("news", b"back")
                assert (await subscription.next(timeout=10)).data == b"back"


async def test_what_the_user_may_not_do_does_not_cross(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    rights = (
        'accounts { A { users: [ { user: a, password: "p w", permissions: '
        '{ publish: ["up.>"], subscribe: { allow: ["down.>"], deny: ["down.secret"] } } } ]\n'
        "jetstream: enabled } }\nno_auth_user: a2\n"
    ).replace("} } } ]", "} } }, { user: a2, password: x } ]")
    local = 'deny_exports: ["up.private"]\ndeny_imports: ["down.boring"]'
    pair_of = linked(kinds, tmp_path, hub_more=rights, user="a:p%20w", remote=local)
    async with (
        pair_of as pair,
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        up = await hub.subscribe(">")
        down = await leaf.subscribe("down.>")
        await hub.flush()
        await leaf.flush()
        await knows(pair.hub, "down.>")
        await knows(pair.leaf, ">")
        for subject in ("up.private", "down.x", "side", "up.ok"):
            await leaf.publish(subject, b"")
        assert (await up.next(timeout=10)).subject == "up.ok"
        for subject in ("down.secret", "down.boring", "up.x", "down.ok"):
            await hub.publish(subject, b"")
        # The leaf's own client heard what it published itself.
        seen = [(await down.next(timeout=10)).subject for _ in range(2)]
        assert seen == ["down.x", "down.ok"]


def logs_of(directory: Path) -> list[str]:
    """What nats-servers have to say."""
    return [path.read_text() for path in directory.glob("*.log")]


async def test_a_wrong_password_is_refused(
    kinds: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = make_pair(
        kinds, tmp_path, hub="authorization { user: u, password: right }", user="u:wrong"
    )
    async with running(pair.hub, pair.leaf):

        async def refused() -> bool:
            logs = await asyncio.to_thread(logs_of, tmp_path)
            return "Authorization Violation" in "".join([caplog.text, *logs])

        await until(refused)
        assert not await pair.hub.links()


async def test_links_that_form_a_loop_are_cut(kinds: tuple[str, str], tmp_path: Path) -> None:
    pair = make_pair(kinds, tmp_path)
    pair.leaf.leafnodes += '\nlisten: "127.0.0.1:LEAF_PORT"'
    pair.hub.leafnodes += f'\nremotes: [ {{ url: "{pair.leaf.leaf_url}" }} ]'
    async with (
        running(pair.hub, pair.leaf),
        await slipstream.connect(pair.hub.url) as hub,
        await slipstream.connect(pair.leaf.url) as leaf,
    ):
        got = await leaf.subscribe("once")
        await leaf.flush()
        await knows(pair.hub, "once")

        async def one_link() -> bool:
            return len(await pair.hub.links()) == 1 == len(await pair.leaf.links())

        await until(one_link)
        await hub.publish("once", b"1")
        await hub.publish("once", b"2")
        found = [(await got.next(timeout=10)).data for _ in range(2)]
        assert found == [b"1", b"2"]


async def test_monitoring_shows_the_link(kinds: tuple[str, str], tmp_path: Path) -> None:
    async with linked(kinds, tmp_path) as pair:
        for node, name, is_spoke in ((pair.hub, "LEAF", False), (pair.leaf, "HUB", True)):
            [link] = await node.links()
            assert (link["name"], link["is_spoke"], link["account"]) == (name, is_spoke, "$G")
            assert link["compression"] in LEVELS
            found = await node.monitor("/varz")
            assert (found["leafnodes"], found["connections"]) == (1, 0)
            kinds_shown = [c["kind"] for c in (await node.monitor("/connz"))["connections"]]
            assert kinds_shown == ["Leafnode"]
        assert (await pair.leaf.monitor("/varz"))["leaf"]["remotes"][0]["local_account"] == "$G"
        assert (await pair.hub.monitor("/varz"))["leaf"]["port"] == pair.hub.leaf_port
