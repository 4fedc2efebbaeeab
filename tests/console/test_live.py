"""What the console sends while a page is open, over a real socket."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator

import httpx2
import pytest
import uvicorn

import slipstream
import slipstream.sync
from slipstream.cli.session import Settings
from slipstream.console.app import make_app
from slipstream.console.command import listen, sessions_for
from slipstream.console.options import ConsoleOptions

WAIT_SECONDS = 60.0


@contextlib.contextmanager
def running(url: str, **given: object) -> Iterator[str]:
    """A console that listens; its address. It runs in a thread, as browsers are apart from it."""
    options = ConsoleOptions(port=0, fresh_seconds=0.0, sample_seconds=0.2, **given)  # type: ignore[arg-type]
    with listen(options) as socket:
        port = socket.getsockname()[1]
        sessions = sessions_for(Settings(server=url, no_context=True), options)
        app = make_app(options, sessions)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        run = server.serve(sockets=[socket])
        thread = threading.Thread(target=lambda: asyncio.run(run))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def address(url: str) -> Iterator[str]:
    """A console in front of the server."""
    with running(url) as found:
        yield found


def until(lines: Iterator[str], text: str) -> str:
    """The line in which a text comes."""
    return next(line for line in lines if text in line)


def test_the_tail_shows_what_is_stored_from_now_on(address: str, url: str, name: str) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.>"])
        js.publish(f"{name}.a", b"before")
        browser.get(f"{address}/connections")
        query = f"?subject={name}.a"
        with browser.stream("GET", f"{address}/streams/{name}/tail{query}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert next(lines) == ": still here"
            while not list(js.consumers(name)):  # the tail's own consumer is on its way
                pass
            js.publish(f"{name}.b", b"of another subject")
            js.publish(f"{name}.a", b"<b>live</b>")
            shown = until(lines, 'class="seq"')
            assert f"/streams/{name}/messages/3" in shown
            assert "&lt;b&gt;live&lt;/b&gt;" in shown


def test_a_work_queue_is_not_watched(address: str, url: str, name: str) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        nc.jetstream().create_stream(name=name, subjects=[name], retention="workqueue")
        page = browser.get(f"{address}/streams/{name}/live").text
        assert "A work queue cannot be watched" in page
        assert "sse-connect" not in page
        assert browser.get(f"{address}/streams/{name}/tail").status_code == 400


def test_the_overview_follows_what_happens(address: str, url: str, name: str) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        browser.get(f"{address}/")
        with browser.stream("GET", f"{address}/live/overview") as answer:
            lines = answer.iter_lines()
            assert until(lines, "event:") == "event: tiles"
            js = nc.jetstream()
            full = {"max_msgs": 1, "discard": "new"}
            js.create_stream(name=name, subjects=[name], **full)
            js.publish(name, b"x")
            assert until(lines, f"Stream {name} is 100% full")


def test_a_watch_shows_changes_of_a_bucket(address: str, url: str, name: str) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        kv = nc.jetstream().create_key_value(name)
        kv.put("before", b"x")
        browser.get(f"{address}/connections")
        with browser.stream("GET", f"{address}/kv/{name}/watch") as answer:
            kv.put("color", b"<b>")
            shown = until(answer.iter_lines(), "mark good")
            assert "color" in shown
            assert "&lt;b&gt;" in shown


@pytest.mark.parametrize("path", ["streams/KV_{}/tail", "kv/{}/watch"])
def test_a_browser_gets_what_came_since_its_page_or_its_last_event(
    address: str, url: str, name: str, path: str
) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        kv = nc.jetstream().create_key_value(name)
        for key in ("first", "second", "third"):
            kv.put(key, key.encode())
        browser.get(f"{address}/connections")
        watch = f"{address}/{path.format(name)}"
        with browser.stream("GET", watch, params={"after": "0"}) as answer:
            assert "first" in until(answer.iter_lines(), "first")
        back = {"last-event-id": "2"}
        with browser.stream("GET", watch, params={"after": "0"}, headers=back) as answer:
            lines = answer.iter_lines()
            assert until(lines, "id:") == "id: 3"
            assert "third" in until(lines, "third")


def test_plots_have_rates_and_lag(address: str, url: str, name: str) -> None:
    with slipstream.sync.connect(url) as nc, httpx2.Client(timeout=WAIT_SECONDS) as browser:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name])
        js.create_consumer(name, durable_name="c")
        browser.get(f"{address}/connections")
        found: dict[str, list[float | None]] = {}
        while not any(found.get("Lag", [])):
            js.publish(name, b"x")
            answer = browser.get(f"{address}/plots/streams/{name}/consumers/c").json()
            assert len(answer["times"]) == len(answer["lines"][0]["values"])
            found = {line["label"]: line["values"] for line in answer["lines"]}
        assert set(found) == {"Lag", "Ack pending"}
        for path in ("overview", "lag", f"streams/{name}", f"streams/{name}/consumers/c/rate"):
            assert browser.get(f"{address}/plots/{path}").status_code == 200


def test_tokens_of_a_page_differ_between_browsers(address: str) -> None:
    def token() -> str:
        with httpx2.Client(timeout=WAIT_SECONDS) as browser:
            found = re.search(r'"X-CSRF-Token": "([^"]+)"', browser.get(f"{address}/kv").text)
            assert found
            return found[1]

    assert token() != token()
