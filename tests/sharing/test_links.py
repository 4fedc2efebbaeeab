"""Imports beside links to other servers: interest goes over, and nothing comes twice."""

from pathlib import Path

import pytest

import slipstream
from tests.leaf.servers import NATS, PAIRS, SLIPSTREAM, make_pair, running
from tests.leaf.test_core import knows
from tests.sharing.servers import accounts

ACCOUNTS = accounts(
    exports='{ stream: "news.>" }, { service: "help" }',
    imports="""
        { stream: { account: EXPORTER, subject: "news.>" }, prefix: "e" }
        { service: { account: EXPORTER, subject: "help" }, to: "get.help" }
    """,
)


@pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
async def test_what_is_imported_comes_from_the_other_server(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    """The leaf has the accounts; the hub is linked to the exporting one."""
    pair = make_pair(kinds, tmp_path, remote="account: EXPORTER", leaf_more=ACCOUNTS)
    async with (
        running(pair.hub, pair.leaf),
        await slipstream.connect(pair.hub.url) as far,
        await slipstream.connect(pair.leaf.url, user="i", password="p") as near,
    ):
        narrow = await near.subscribe("e.news.*")
        wide = await near.subscribe("e.>")

        async def answer(message: slipstream.Message) -> None:
            await message.respond(message.data.upper())

        await far.subscribe("help", handler=answer)
        await far.flush()
        await near.flush()
        await knows(pair.hub, "news.*")
        await knows(pair.leaf, "help")
        for number in range(50):
            await far.publish(f"news.{number}", b"%d" % number)
        await far.publish("news.end", b"end")
        for subscription in (narrow, wide):
            found = [await subscription.next(timeout=10) for _ in range(51)]
            assert [m.data for m in found] == [b"%d" % n for n in range(50)] + [b"end"]
            assert found[0].subject == "e.news.0"
        answers = [await near.request("get.help", b"word", timeout=10) for _ in range(20)]
        assert {message.data for message in answers} == {b"WORD"}


@pytest.mark.parametrize("kinds", [(SLIPSTREAM, NATS), (SLIPSTREAM, SLIPSTREAM)])
async def test_what_is_imported_goes_to_the_other_server_once(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    """The hub has the accounts; the leaf is linked to the importing one, and listens twice."""
    pair = make_pair(kinds, tmp_path, hub_more=ACCOUNTS, user="i:p")
    async with (
        running(pair.hub, pair.leaf),
        await slipstream.connect(pair.leaf.url) as far,
        await slipstream.connect(pair.hub.url, user="e", password="p") as owner,
    ):
        narrow = await far.subscribe("e.news.*")
        wide = await far.subscribe("e.>")
        grouped = await far.subscribe("e.news.>", queue="q")

        async def answer(message: slipstream.Message) -> None:
            await message.respond(message.data.upper())

        await owner.subscribe("help", handler=answer)
        await owner.flush()
        await far.flush()
        for subject in ("e.news.*", "e.>", "e.news.>"):
            await knows(pair.hub, subject)
        for number in range(50):
            await owner.publish(f"news.{number}", b"%d" % number)
        await owner.publish("news.end", b"end")
        for subscription in (narrow, wide, grouped):
            found = [await subscription.next(timeout=10) for _ in range(51)]
            assert [m.data for m in found] == [b"%d" % n for n in range(50)] + [b"end"]
        await knows(pair.leaf, "get.help")
        assert (await far.request("get.help", b"word", timeout=10)).data == b"WORD"
