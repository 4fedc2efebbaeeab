"""What gets to the console's pages, and what does not."""

from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

import slipstream
import slipstream.sync
from slipstream.console.app import make_app
from slipstream.console.guard import SECURITY_HEADERS
from slipstream.console.options import ConsoleOptions
from slipstream.console.render import NAVIGATION
from slipstream.server.config import load_file
from slipstream.server.options import ServerOptions
from tests.console.conftest import ADDRESS, Console, MakeConsole


@pytest.fixture
def console(own_url: str, make_console: MakeConsole) -> Console:
    """A console in front of the Slipstream server alone: the server has no part in this."""
    return make_console(own_url)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8380", "127.0.0.1.evil.example"])
def test_a_name_that_was_pointed_at_this_machine_is_refused(console: Console, host: str) -> None:
    answer = console.client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["localhost:8380", "127.0.0.1", "[::1]:8380", "proxy.example"])
def test_names_of_this_machine_and_allowed_ones_are_answered(
    own_url: str, make_console: MakeConsole, host: str
) -> None:
    console = make_console(own_url, hosts=("proxy.example",))
    console.get("/connections", host=host)


def test_a_session_that_came_over_tls_stays_there(console: Console) -> None:
    answer = console.client.get(ADDRESS.replace("http", "https") + "/connections")
    assert answer.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example", "http://127.0.0.1:9999"])
def test_what_another_page_sends_is_refused(console: Console, origin: str) -> None:
    headers = {"x-csrf-token": console.token()} | ({"origin": origin} if origin else {})
    answer = console.client.post("/streams/S/delete", data={"confirm": "S"}, headers=headers)
    assert answer.status_code == 403
    assert "not sent by a page" in answer.text


@pytest.mark.parametrize("token", ["", "wrong", "naïve"])
def test_a_change_without_the_sessions_token_is_refused(console: Console, token: str) -> None:
    console.get("/connections")
    headers = {"origin": ADDRESS.encode(), "x-csrf-token": token.encode()}
    answer = console.client.post("/streams/S/delete", data={"confirm": "S"}, headers=headers)
    assert answer.status_code == 403
    assert "older than your session" in answer.text


def test_pages_are_no_parts_of_pages_elsewhere(console: Console) -> None:
    foreign = {"sec-fetch-site": "cross-site"}
    console.get("/static/console.js", status=403, **foreign, **{"sec-fetch-mode": "no-cors"})
    console.get("/connections", **foreign, **{"sec-fetch-mode": "navigate"})  # a link to it


def test_every_answer_has_the_security_headers(console: Console) -> None:
    for address in ("/", "/static/console.css", "/login", "/nothing-here", "/streams/NOPE"):
        answer = console.client.get(address)
        for name, value in SECURITY_HEADERS.items():
            assert answer.headers[name] == value


def test_no_page_has_anything_inline_or_from_elsewhere() -> None:
    folder = Path(slipstream.__file__).parent / "console"
    for template in (folder / "templates").glob("*.html"):
        text = template.read_text()
        for forbidden in ("style=", "<style", "onclick", "javascript:", "http://", "https://"):
            assert forbidden not in text, template.name
        for tag in text.split("<script")[1:]:
            assert tag.startswith(' src="{{ base }}/static/'), template.name
        assert "|safe" not in text, template.name


def test_read_only_refuses_every_change_and_shows_no_button_for_one(
    own_url: str, make_console: MakeConsole, name: str
) -> None:
    console = make_console(own_url, read_only=True)
    with slipstream.sync.connect(own_url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name])
        js.publish(name, b"x")
        js.create_consumer(name, durable_name="c")
        js.create_key_value(name).put("k", b"v")
        js.create_object_store(name)
        token = console.token()
        for address in changing_addresses():
            made = address.format(stream=name, consumer="c", sequence=1, bucket=name)
            said = console.post(made, status=403, token=token, confirm=name, subject=name)
            assert "read-only" in said
        pages = [
            f"/streams/{name}", f"/streams/{name}/messages/1", f"/streams/{name}/consumers/c",
            f"/kv/{name}", f"/kv/{name}/key?key=k", f"/objects/{name}",
        ]  # fmt: skip
        for page in pages:
            text = console.get(page)
            assert "hx-post" not in text, page
            assert "read-only" in text
        assert js.stream_info(name).state.messages == 1


def changing_addresses() -> list[str]:
    """The addresses that change something on the server."""
    sessions: Any = None
    app = make_app(ConsoleOptions(), sessions)
    routes = [route for route in app.routes if isinstance(route, Route)]
    found = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(found) > 12
    return [path for path in found if path not in ("/login", "/logout")]


def test_pages_of_the_navigation_are_there_and_say_which_one_is_open(console: Console) -> None:
    for address, _ in NAVIGATION:
        assert f'<a href="{address}" aria-current="page">' in console.get(address)


def test_nothing_is_shown_without_a_session_where_the_console_has_credentials(
    tmp_path: Path, make_console: MakeConsole
) -> None:
    text = 'authorization { user: ann, password: "secret of ann" }'
    with slipstream.Server(config=configured(text, tmp_path)) as server:
        settings = {"user": "ann", "password": "secret of ann"}
        console = make_console(server.url, settings)
        for address in ("/", "/streams", "/live/overview", "/plots/lag"):
            answer = console.client.get(address)
            assert answer.status_code == 303
            assert answer.headers["location"] == "/login"
        assert console.client.get("/?access=guessed").status_code == 303
        entered = console.client.get(f"/?access={console.sessions.key}")
        assert entered.headers["location"] == "/"
        assert "HttpOnly; SameSite=Strict" in entered.headers["set-cookie"]
        assert "Overview" in console.get("/")


def test_users_of_the_server_log_in_and_may_do_what_the_server_lets_them(
    tmp_path: Path, make_console: MakeConsole
) -> None:
    users = """
        authorization { users: [
          {user: ann, password: "secret of ann"}
          {user: bob, password: "secret of bob", permissions: {
            publish: {deny: ["$JS.API.STREAM.DELETE.>"]}, subscribe: ["_INBOX.>"]}}
        ] }
        """
    with slipstream.Server(config=configured(users, tmp_path)) as server:
        ann = make_console(server.url)
        assert "Log in" in ann.get("/login")
        ann.get("/streams", status=303)
        log_in(ann, "ann", "wrong", 401)
        log_in(ann, "", "", 400)
        log_in(ann, "ann", "secret of ann", 303)
        with slipstream.sync.connect(server.url, user="ann", password="secret of ann") as nc:
            nc.jetstream().create_stream(name="S", subjects=["s"])
        bob = make_console(server.url)
        log_in(bob, "bob", "secret of bob", 303)
        assert "as <b>bob</b>" in bob.get("/streams/S")
        said = bob.post("/streams/S/delete", status=403, confirm="S")
        assert "ermission" in said
        assert ann.post("/streams/S/delete", confirm="S") == "/streams"
        assert ann.post("/logout") == "/login"
        ann.get("/streams", status=303)


def configured(text: str, folder: Path) -> ServerOptions:
    """A server's options from a configuration file's text."""
    path = folder / "server.conf"
    listening = f'listen: 127.0.0.1:-1, jetstream {{ store_dir: "{folder}/data" }}'
    path.write_text(f"{listening}\n{text}")
    return load_file(str(path)).options


def log_in(console: Console, user: str, password: str, status: int) -> None:
    """Fill in the form."""
    form = {"user": user, "password": password}
    answer = console.client.post("/login", data=form, headers={"origin": ADDRESS})
    assert answer.status_code == status, answer.text


def test_the_login_form_is_not_for_other_pages(console: Console) -> None:
    form = {"user": "a", "password": "b"}
    answer = console.client.post("/login", data=form, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403
