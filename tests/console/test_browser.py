"""The console in a real Chromium: each page opened, each action done as a person does it.

A page that logs an error, breaks its content security policy, is wider than its window or has a
serious fault of accessibility fails its test, in light and dark, on a desk and on a phone.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

import slipstream
import slipstream.sync
from tests.console.test_live import running

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
SCREENS = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
HOSTILE = "<img src=x onerror=alert(1)>"
PAGES = [
    "/",
    "/streams",
    "/consumers",
    "/kv",
    "/objects",
    "/queries",
    "/connections",
    "/streams/ORDERS",
    "/streams/ORDERS/messages",
    "/streams/ORDERS/messages?start=1&subject=orders.*&where=json.id > 3",
    "/streams/ORDERS/messages/2",
    "/streams/ORDERS/live",
    "/streams/ORDERS/subjects",
    "/streams/ORDERS/consumers",
    "/streams/ORDERS/publish?again=2",
    "/streams/ORDERS/edit",
    "/streams/ORDERS/danger",
    "/streams/ORDERS/consumers/billing",
    "/streams/EMPTY/messages",
    "/streams/EMPTY/consumers",
    "/kv/CONFIG",
    "/kv/CONFIG/key?key=theme",
    "/objects/FILES",
    "/streams?q=nothing",
    "/login",
]

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="NO BROWSER: the console's pages were not tried in one; install Chromium "
        "(on Debian: apt-get install chromium) and run this again",
    ),
    pytest.mark.xdist_group("browser"),
]

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        expect.set_options(timeout=WAIT_MS)  # for what happens at once on a quiet machine
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield made
        made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[slipstream.Server]":
    """A server with a bit of everything."""
    with slipstream.Server(store_dir=str(tmp_path_factory.mktemp("store"))) as made:
        with slipstream.sync.connect(made.url) as nc:
            fill(nc.jetstream())
        yield made


def fill(js: Any) -> None:
    """Streams, consumers, buckets and objects, some of them hostile."""
    js.create_stream(name="ORDERS", subjects=["orders.>"], description=HOSTILE, allow_direct=True)
    js.create_stream(name="EMPTY", subjects=["empty"])
    for number in range(60):
        body = json.dumps({"id": number, "text": HOSTILE})
        js.publish(f"orders.{number % 4}", body, headers={"X": HOSTILE})
    js.publish(f"orders.{HOSTILE.replace(' ', '')}", b"\x00\xff" + HOSTILE.encode())
    js.create_consumer("ORDERS", durable_name="billing", max_ack_pending=3)
    js.create_consumer("ORDERS", durable_name="poison", max_deliver=1, filter_subject="orders.0")
    assert len(list(js.consumer("ORDERS", "billing").fetch(3, timeout=5))) == 3
    kv = js.create_key_value("CONFIG", history=5)
    for value in ("one", "two", HOSTILE):
        kv.put("theme", value)
    js.create_object_store("FILES").put(HOSTILE, b"bytes")


@pytest.fixture(scope="module")
def address(server: "slipstream.Server") -> Iterator[str]:
    """The console in front of it."""
    with running(server.url) as found:
        yield found


@pytest.fixture
def js(server: "slipstream.Server") -> Iterator[Any]:
    """The server's JetStream, without await."""
    with slipstream.sync.connect(server.url) as nc:
        yield nc.jetstream()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page at a desk; what goes wrong in it fails the test."""
    yield from opened(browser, address, SCREENS["desk"], "light")


def opened(browser: Browser, address: str, screen: Any, scheme: Any) -> Iterator[Page]:
    """A page of its own, that is looked over at the end."""
    context = browser.new_context(viewport=screen, color_scheme=scheme, base_url=address)
    wrong: list[str] = []
    made = context.new_page()
    made.on("console", lambda said: wrong.append(said.text) if is_wrong(said) else None)
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("dialog", lambda dialog: wrong.append(f"a script ran: {dialog.message}"))
    yield made
    context.close()
    assert wrong == []


def is_wrong(said: ConsoleMessage) -> bool:
    """Whether it is an error; that something was refused, as a test wanted, is none."""
    return said.type == "error" and "status of 400" not in said.text


def look_over(page: Page) -> None:
    """It fits its window, and everybody can use it."""
    width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= window
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious] == []


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_fits_and_can_be_used_by_everybody(
    browser: Browser, address: str, scheme: str, screen: str
) -> None:
    for page in opened(browser, address, SCREENS[screen], scheme):
        for path in PAGES:
            answer = page.goto(path, wait_until="load")
            assert answer is not None
            assert answer.status == 200
            expect(page.locator("h1")).to_be_visible()
            look_over(page)


def test_a_message_opens_in_all_its_views(page: Page) -> None:
    page.goto("/streams/ORDERS/messages?start=1")
    message = page.locator("details.message").first
    message.locator("summary").first.click()
    expect(message.get_by_role("tab", name="JSON")).to_have_attribute("aria-selected", "true")
    expect(message.get_by_role("tabpanel").first).to_contain_text(f'"text": "{HOSTILE}"')
    message.get_by_role("tab", name="JSON").press("ArrowRight")
    expect(message.get_by_role("tab", name="Text")).to_be_focused()
    message.get_by_role("tab", name="Hex").click()
    expect(message.get_by_text("00000000  7b 22")).to_be_visible()
    message.get_by_text("As code").click()
    expect(message.get_by_text("import slipstream.sync")).to_be_visible()
    look_over(page)


def test_code_is_copied(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    page.goto("/streams/ORDERS/messages/2")
    page.get_by_text("As code").click()
    page.get_by_role("tab", name="CLI").click()
    page.get_by_role("button", name="Copy").last.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "slipstream stream get ORDERS 2"


def test_the_slider_travels_in_time(page: Page) -> None:
    page.goto("/streams/ORDERS/messages")
    expect(page.locator("details.message .seq").first).to_have_text("61")
    page.get_by_label("Travel in time").press("Home")
    page.get_by_label("Travel in time").press("Tab")
    expect(page).to_have_url(re.compile("start=20"))
    expect(page.locator("details.message .seq").first).to_have_text("1")


def test_the_tree_of_subjects_is_walked(page: Page) -> None:
    page.goto("/streams/ORDERS/subjects")
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.get_by_role("rowheader", name="3", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="3", exact=True))
    row.get_by_role("link", name="Messages").click()
    expect(page.locator("details.message")).to_have_count(15)


def test_what_is_published_elsewhere_appears_live(page: Page, js: Any) -> None:
    page.goto("/streams/ORDERS/live?subject=orders.live", wait_until="commit")
    js.publish("orders.live", HOSTILE)
    expect(page.locator("#tail .subject")).to_have_text("orders.live")
    expect(page.locator("#tail .preview")).to_have_text(HOSTILE)
    expect(page.get_by_text("Waiting for messages")).to_be_hidden()
    expect(page.locator("[data-state]")).to_have_text("connected")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def test_a_message_is_published(page: Page, js: Any) -> None:
    page.goto("/streams/EMPTY/messages")
    page.get_by_role("link", name="Publish one").click()
    page.get_by_label("Subject").fill("not.stored.anywhere")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("alert")).to_contain_text("not.stored.anywhere")
    page.get_by_label("Subject").fill("empty")
    page.get_by_label("Headers").fill("Kind: first")
    page.get_by_label("Body").fill("hello")
    page.get_by_role("button", name="Publish").click()
    expect(page.locator(".notice")).to_contain_text("Stored on empty as message")
    assert js.stream("EMPTY").get_last_message("empty").data == b"hello"
    js.purge_stream("EMPTY")


def test_a_configuration_is_reviewed_and_changed(page: Page, js: Any) -> None:
    js.create_stream(name="EDITED", subjects=["edited"])
    page.goto("/streams/EDITED/edit")
    page.get_by_label("Messages at most").fill("many")
    page.get_by_role("button", name="Review the changes").click()
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    page.get_by_label("Messages at most").fill("10")
    page.get_by_label("Deletes are denied").check()
    page.get_by_role("button", name="Review the changes").click()
    expect(page.get_by_role("row", name="Messages at most")).to_contain_text("10")
    page.get_by_role("button", name="Update EDITED").click()
    expect(page.locator(".notice")).to_contain_text("EDITED was updated: 2 fields")
    config = js.stream_info("EDITED").config
    assert (config.max_msgs, config.deny_delete) == (10, True)


def test_purging_and_deleting_want_the_name_typed(page: Page, js: Any) -> None:
    js.create_stream(name="DOOMED", subjects=["doomed"])
    js.publish("doomed", b"x")
    page.goto("/streams/DOOMED/danger")
    purge = page.get_by_role("button", name="Purge messages")
    expect(purge).to_be_disabled()
    page.locator("#confirm-purge").fill("DOOMED")
    purge.click()
    expect(page.locator(".notice")).to_contain_text("1 message of DOOMED was purged")
    page.get_by_role("link", name="Purge and delete").click()
    page.locator("#confirm-delete").fill("DOOMED")
    page.get_by_role("button", name="Delete the stream").click()
    expect(page.locator(".notice")).to_contain_text("Stream DOOMED was deleted")
    assert "DOOMED" not in list(js.stream_names())


def test_a_message_is_deleted(page: Page, js: Any) -> None:
    sequence = js.publish("orders.gone", b"x").sequence
    page.goto(f"/streams/ORDERS/messages/{sequence}")
    page.locator("#confirm-message").fill(str(sequence))
    page.get_by_role("button", name="Delete the message").click()
    expect(page.locator(".notice")).to_contain_text(f"Message {sequence} was deleted")


def test_a_consumer_is_paused_resumed_reset_and_deleted(page: Page, js: Any) -> None:
    js.create_consumer("ORDERS", durable_name="worker")
    page.goto("/streams/ORDERS/consumers")
    page.get_by_role("link", name="worker").click()
    expect(page.get_by_text("Nobody asks for messages")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".badge", has_text="paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".notice")).to_contain_text("delivers again")
    page.get_by_label("Go on at").fill("50")
    page.locator("#confirm-reset").fill("worker")
    page.get_by_role("button", name="Reset the consumer").click()
    expect(page.locator(".notice")).to_contain_text("goes on at sequence 50")
    assert js.consumer("ORDERS", "worker").next(timeout=5).metadata.stream_sequence == 50
    page.locator("#confirm-delete").fill("worker")
    page.get_by_role("button", name="Delete the consumer").click()
    expect(page.locator(".notice")).to_contain_text("Consumer worker was deleted")


def test_a_dead_letter_is_sent_again(page: Page, js: Any) -> None:
    js.create_stream(name="LETTERS", subjects=["letters"])
    js.publish("letters", b"poison")
    consumer = js.create_consumer("LETTERS", durable_name="c", max_deliver=2)
    for _ in range(2):
        consumer.next(timeout=5).nak()
    assert list(consumer.fetch_no_wait(1)) == []
    page.goto("/streams/LETTERS/consumers/c")
    page.get_by_role("button", name="Send again").click()
    expect(page.locator(".notice")).to_contain_text("sent again, as message 2 of LETTERS")


def test_a_key_is_made_edited_watched_and_deleted(page: Page, js: Any) -> None:
    kv = js.create_key_value("EDITS", history=5)
    page.goto("/kv/EDITS", wait_until="commit")
    kv.put("seen", HOSTILE)
    expect(page.locator("[data-live] li")).to_contain_text(HOSTILE)
    page.get_by_label("Key", exact=True).fill("color")
    page.get_by_label("Value").fill("red")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="color", exact=True)).to_be_visible()
    page.locator("#k-value").fill("green")
    page.get_by_role("button", name="Store").click()
    expect(page.locator(".diff .del")).to_have_text("red")
    expect(page.locator(".diff .add")).to_have_text("green")
    kv.put("color", b"blue")
    page.locator("#k-value").fill("black")
    page.get_by_role("button", name="Store").click()
    expect(page.get_by_role("alert")).to_contain_text("revision")
    assert kv.get("color").data == b"blue"
    page.reload()
    page.locator("#confirm-key").fill("color")
    page.get_by_role("button", name="Delete the key").click()
    expect(page.locator(".notice")).to_contain_text("Key color was deleted")


def test_nothing_can_be_sent_before_the_scripts_have_come(page: Page, js: Any) -> None:
    js.create_key_value("EARLY", history=5).put("color", b"red")
    held: list[Route] = []
    page.route("**/htmx.min.js", lambda route: held.append(route), times=1)
    page.goto("/kv/EARLY/key?key=color", wait_until="commit")
    page.locator("#k-value").fill("green")
    store = page.get_by_role("button", name="Store")
    expect(store).to_be_disabled()
    page.locator("#confirm-key").fill("color")
    page.locator("#confirm-key").press("Enter")
    assert len(held) == 1
    held[0].continue_()
    expect(store).to_be_enabled()
    expect(page.get_by_role("button", name="Delete the key")).to_be_enabled()
    store.click()
    expect(page.locator(".diff .add")).to_have_text("green")
    assert "green" not in page.url


def test_an_object_goes_up_and_down_and_away(page: Page, js: Any, tmp_path: Path) -> None:
    store = js.create_object_store("UPLOADS")
    file = tmp_path / "report.bin"
    file.write_bytes(bytes(range(256)) * 1000)
    page.goto("/objects/UPLOADS")
    page.locator("#o-file").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".notice")).to_contain_text("report.bin was stored: 256,000 bytes")
    assert store.get("report.bin") == file.read_bytes()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download report.bin").click()
    assert download.value.path().read_bytes() == file.read_bytes()
    page.get_by_label("Its whole name").fill("report.bin")
    page.get_by_role("button", name="Go on").click()
    page.locator("#confirm-object").fill("report.bin")
    page.get_by_role("button", name="Delete the object").click()
    expect(page.locator(".notice")).to_contain_text("Object report.bin was deleted")


def test_plots_are_drawn_and_the_overview_follows(page: Page, js: Any) -> None:
    page.goto("/")
    expect(page.locator(".plot canvas").first).to_be_visible(timeout=60_000)
    full = js.create_stream(name="FULL", subjects=["full"], max_msgs=1, discard="new")
    js.publish("full", b"x")
    expect(page.get_by_text("Stream FULL is 100% full")).to_be_visible(timeout=60_000)
    full.delete()


def test_lists_are_sorted_and_filtered(page: Page) -> None:
    page.goto("/streams")
    page.get_by_role("link", name="Messages", exact=True).click()
    expect(page.locator("tbody th a").first).to_have_text("ORDERS")
    page.get_by_label("Filter").fill("EMPTY")
    page.get_by_label("Filter").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_somebody_logs_in_and_out(page: Page) -> None:
    page.goto("/login")
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("any, for this server asks nobody")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".server")).to_contain_text("as ann")
    page.wait_for_load_state()  # its scripts, which the button needs
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_read_only_pages_have_no_way_to_change_anything(
    browser: Browser, server: "slipstream.Server"
) -> None:
    with running(server.url, read_only=True) as address:
        for page in opened(browser, address, SCREENS["desk"], "light"):
            for path in PAGES:
                if not re.search("publish|edit|danger|login", path):
                    page.goto(path)
                    changing = page.locator("[hx-post]")
                    expect(changing).to_have_count(0)
            expect(page.get_by_text("read-only")).to_be_visible()
