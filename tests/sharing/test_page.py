"""The examples of the page about accounts are good, and do what it says."""

from pathlib import Path

import pytest

import slipstream
from slipstream.server.config import load_text
from tests.leaf.servers import SLIPSTREAM, until
from tests.leaf.test_jetstream import has_all
from tests.pages import ROOT, blocks, run
from tests.sharing.servers import server

PAGE = ROOT / "docs" / "accounts.md"


def configurations() -> list[str]:
    """The files on the page."""
    return [part.split("```")[0] for part in PAGE.read_text().split("```conf\n")[1:]]


def test_the_configurations_of_the_page_are_good() -> None:
    for text in configurations():
        load_text(text).options.validate()


async def test_the_first_example_of_the_accounts_page_runs(tmp_path: Path) -> None:
    async with (
        server(SLIPSTREAM, tmp_path, configurations()[0]) as node,
        await slipstream.connect(node.url, user="shop", password="s3cret") as shop,
        await slipstream.connect(node.url, user="office", password="s3cret") as office,
    ):
        prices = await office.subscribe("shop.shoes.*")
        await office.flush()
        await shop.publish("prices.eur.shoes", b"99")
        assert (await prices.next(timeout=10)).subject == "shop.shoes.eur"

        async def answer(message: slipstream.Message) -> None:
            await message.respond(b"7")

        await shop.subscribe("stock", handler=answer)
        await shop.flush()
        assert (await office.request("shop.stock", b"", timeout=10)).data == b"7"


async def test_the_jetstream_example_of_the_accounts_page_runs(tmp_path: Path) -> None:
    async with (
        server(SLIPSTREAM, tmp_path, configurations()[1]) as node,
        await slipstream.connect(node.url, user="hub", password="s3cret") as hub,
        await slipstream.connect(node.url, user="team", password="s3cret") as team,
    ):
        await hub.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])
        names = {"connection": team}
        for block in blocks("accounts.md"):
            await run(block, names)
        await until(has_all(team.jetstream(), "COPY", 1), "the mirror does not follow")


async def test_a_reload_changes_imports_while_messages_flow(tmp_path: Path) -> None:
    text = configurations()[0]
    async with (
        server(SLIPSTREAM, tmp_path, text) as node,
        await slipstream.connect(node.url, user="shop", password="s3cret") as shop,
        await slipstream.connect(node.url, user="office", password="s3cret") as office,
    ):
        kept = await office.subscribe("shop.*.*")
        moved = await office.subscribe("store.*.*")
        await office.flush()
        await shop.publish("prices.eur.shoes", b"before")
        await shop.flush()
        node.more = text.replace("shop.$2.$1", "store.$2.$1")
        node.reload(load_text(node.configuration()).options)
        await shop.publish("prices.eur.shoes", b"after")
        assert (await kept.next(timeout=10)).data == b"before"
        assert (await moved.next(timeout=10)).data == b"after"
        node.more = text.replace('stream: "prices.*.*"', 'stream: "other"')
        with pytest.raises(slipstream.Error, match="stream import not authorized"):
            node.reload(load_text(node.configuration()).options)
        await shop.publish("prices.eur.shoes", b"still")
        assert (await moved.next(timeout=10)).data == b"still"
