"""`slipstream auth` beside nats-servers in operator mode, which believe the JWTs that it makes."""

import json
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest

import slipstream
from slipstream.cli.auth.operator import SYSTEM_ACCOUNT
from slipstream.cli.cheat import EXAMPLES
from slipstream.client import AuthorizationError, ConnectionLostError, NoRespondersError
from slipstream.client.auth import read_credentials
from slipstream.client.events import ErrorEvent
from slipstream.client.jetstream.errors import JetStreamError
from tests.cli.conftest import WAIT_SECONDS, Cli
from tests.fix_nats_server import NatsServer, start_nats_server, stop_nats_server
from tests.lasting_ports import lasting_port

Start = Callable[..., NatsServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a nats-server with the configuration that `auth operator generate` prints."""
    started: list[NatsServer] = []

    def run(cli: Cli, *words: str, more: str = "") -> NatsServer:
        directory = tmp_path / f"server-{len(started)}"
        directory.mkdir()
        config = directory / "server.conf"
        cli("auth", "operator", "generate", "--output", str(config), *words)
        config.write_text(config.read_text() + more)
        started.append(start_nats_server(directory, "-c", str(config)))
        return started[-1]

    yield run
    for server in started:
        stop_nats_server(server)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with operator acme, the accounts ORDERS and OTHER, and a user in each."""
    cli = Cli("", tmp_path_factory.mktemp("acme"))
    cli("auth", "operator", "add", "acme")
    cli("auth", "account", "add", "ORDERS", "--jetstream", "--defaults")
    cli("auth", "account", "add", "OTHER", "--defaults")
    user(cli, "alice", "ORDERS", "--pub-allow", "orders.>,$JS.API.>", "--pub-deny", "orders.x")
    user(cli, "olga", "OTHER")
    return cli.home


@pytest.fixture
def acme(made: Path, offline: Cli) -> Cli:
    """The command line with a copy of that home."""
    shutil.copytree(made, offline.home, dirs_exist_ok=True)
    return offline


def user(cli: Cli, name: str, account: str, *words: str) -> str:
    """Make a user; its credentials file."""
    path = credentials(cli, name)
    cli("auth", "user", "add", name, account, "--defaults", "--credential", path, *words)
    return path


def credentials(cli: Cli, name: str) -> str:
    """The credentials file of a user."""
    return str(cli.home / f"{name}.creds")


def push(cli: Cli, server: NatsServer, account: str, status: int = 0) -> str:
    """What `account push` says, as the user boss of the system account."""
    boss = credentials(cli, "boss")
    line = ("auth", "account", "push", account, "--server", server.url, "--creds", boss)
    done = cli(*line, status=status)
    return done.out + done.err


async def test_a_user_connects_and_may_what_its_jwt_says(acme: Cli, start: Start) -> None:
    server = start(acme)
    alice = credentials(acme, "alice")
    async with slipstream.connect(server.url, credentials=alice) as nc:
        errors: list[str] = []
        nc.on(ErrorEvent, lambda event: errors.append(str(event.error)))
        orders = await nc.subscribe("orders.>")
        for subject in ("orders.x", "elsewhere", "orders.new"):
            await nc.publish(subject, b"1")
        assert (await orders.next(10)).subject == "orders.new"
        await nc.flush()
        assert len(errors) == 2
        assert "orders.x" in errors[0]
        assert "elsewhere" in errors[1]


async def test_nats_py_connects_with_the_credentials_file(acme: Cli, start: Start) -> None:
    server = start(acme)
    nc = await nats.connect(server.url, user_credentials=credentials(acme, "alice"))
    orders = await nc.subscribe("orders.>")
    await nc.publish("orders.new", b"1")
    assert (await orders.next_msg(10)).data == b"1"
    await nc.close()


async def test_accounts_do_not_see_each_other(acme: Cli, start: Start) -> None:
    server = start(acme)
    async with (
        slipstream.connect(server.url, credentials=credentials(acme, "alice")) as alice,
        slipstream.connect(server.url, credentials=credentials(acme, "olga")) as olga,
    ):
        seen = await olga.subscribe("orders.>")
        await olga.flush()
        await alice.publish("orders.new", b"alice")
        await alice.flush()
        await olga.publish("orders.new", b"olga")
        assert (await seen.next(10)).data == b"olga"


async def test_an_account_stores_as_much_as_it_may(acme: Cli, start: Start) -> None:
    acme("auth", "account", "edit", "ORDERS", "--js-streams", "1", "--js-disk", "1MB")
    server = start(acme)
    async with slipstream.connect(server.url, credentials=credentials(acme, "alice")) as nc:
        js = nc.jetstream()
        await js.create_stream(name="ONE", subjects=["one"], max_bytes=1000)
        limits = (await js.account_info()).limits
        assert (limits.max_streams, limits.max_storage) == (1, 1024**2)
        with pytest.raises(JetStreamError, match="maximum number of streams"):
            await js.create_stream(name="TWO", subjects=["two"], max_bytes=1000)
    async with slipstream.connect(server.url, credentials=credentials(acme, "olga")) as nc:
        with pytest.raises(slipstream.Error):
            await nc.jetstream().account_info()


async def test_users_of_a_role_may_what_the_role_says(acme: Cli, start: Start) -> None:
    acme("auth", "account", "keys", "add", "ORDERS", "reader",
         "--sub-allow", "orders.>", "--pub-deny", ">")  # fmt: skip
    reader = user(acme, "rita", "ORDERS", "--key", "reader")
    server = start(acme)
    async with (
        slipstream.connect(server.url, credentials=reader) as rita,
        slipstream.connect(server.url, credentials=credentials(acme, "alice")) as alice,
    ):
        errors: list[str] = []
        rita.on(ErrorEvent, lambda event: errors.append(str(event.error)))
        seen = await rita.subscribe("orders.>")
        await rita.publish("orders.new", b"rita")
        await rita.flush()
        await alice.publish("orders.new", b"alice")
        assert (await seen.next(10)).data == b"alice"
        assert "orders.new" in errors[0]


async def test_an_account_has_of_another_what_it_imports(acme: Cli, start: Start) -> None:
    exports, imports = ("auth", "account", "exports"), ("auth", "account", "imports")
    acme(*exports, "add", "New orders", "orders.*", "ORDERS")
    acme(*exports, "add", "Prices", "price", "ORDERS", "--service")
    acme(*imports, "add", "New orders", "orders.*", "OTHER", "--source", "ORDERS",
         "--local", "theirs.$1")  # fmt: skip
    acme(*imports, "add", "Prices", "price", "OTHER", "--source", "ORDERS", "--service",
         "--local", "their.price")  # fmt: skip
    seller = user(acme, "sam", "ORDERS")
    server = start(acme)
    async with (
        slipstream.connect(server.url, credentials=seller) as sam,
        slipstream.connect(server.url, credentials=credentials(acme, "olga")) as olga,
    ):
        seen = await olga.subscribe("theirs.*")
        await olga.flush()
        await sam.subscribe("price", handler=lambda message: message.respond(b"12"))
        await sam.publish("orders.new", b"1")
        await sam.flush()
        assert (await seen.next(10)).subject == "theirs.new"
        assert (await olga.request("their.price")).data == b"12"


async def test_a_mapped_subject_is_another(acme: Cli, start: Start) -> None:
    acme("auth", "account", "mappings", "add", "ORDERS", "orders.*", "orders.v2.{{wildcard(1)}}")
    server = start(acme)
    async with slipstream.connect(server.url, credentials=credentials(acme, "alice")) as nc:
        seen = await nc.subscribe("orders.>")
        await nc.publish("orders.new", b"1")
        assert (await seen.next(10)).subject == "orders.v2.new"


@pytest.fixture
def full(acme: Cli, start: Start) -> NatsServer:
    """A server with a full resolver that has the system account alone."""
    user(acme, "boss", "SYSTEM")
    return start(acme, "--resolver", "full", "--dir", str(acme.home / "resolver"))


async def test_a_server_with_a_full_resolver_takes_what_is_pushed(
    acme: Cli, full: NatsServer
) -> None:
    alice = credentials(acme, "alice")
    with pytest.raises(AuthorizationError):
        await slipstream.connect(full.url, credentials=alice)
    assert "Account ORDERS is on 1 server\n" in push(acme, full, "ORDERS")
    async with slipstream.connect(full.url, credentials=alice) as nc:
        await nc.flush()
    acme("auth", "account", "edit", "ORDERS", "--payload", "1KB")
    push(acme, full, "ORDERS")
    async with slipstream.connect(full.url, credentials=alice) as nc:
        assert nc.max_payload == 1024


def test_an_account_is_shown_as_servers_have_it(acme: Cli, full: NatsServer) -> None:
    ask = ("auth", "account", "query", "ORDERS")
    boss = ("--server", full.url, "--creds", credentials(acme, "boss"))
    missing = acme(*ask, *boss, status=1).err
    assert "the servers do not have account ORDERS" in missing
    assert "auth account push ORDERS" in missing
    push(acme, full, "ORDERS")
    file = acme.home / "orders.jwt"
    found = json.loads(acme(*ask, str(file), *boss, "--json").out)
    kept = json.loads(acme("auth", "account", "info", "ORDERS", "--json").out)
    assert found == kept
    assert json.loads(acme("jwt", "decode", str(file), "--json").out)["sub"] == found["sub"]


def test_who_may_not_push_is_told_who_may(acme: Cli, full: NatsServer) -> None:
    push(acme, full, "ORDERS")
    line = ("auth", "account", "push", "ORDERS", "--server", full.url, "--timeout", "1s")
    refused = acme(*line, "--creds", credentials(acme, "alice"), status=1).err
    assert "system account" in refused


def test_an_account_that_a_memory_resolver_lacks_is_not_pushed_to_it(
    acme: Cli, start: Start
) -> None:
    user(acme, "boss", "SYSTEM")
    server = start(acme)
    acme("auth", "account", "add", "LATER", "--defaults")
    said = push(acme, server, "LATER", status=1)
    assert "account LATER is not on" in said
    assert "--resolver full" in said


def test_a_server_that_is_silent_is_missed(acme: Cli, start: Start) -> None:
    user(acme, "boss", "SYSTEM")
    ports = [lasting_port(), lasting_port()]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    servers = [
        start(
            acme, "--resolver", "full", "--dir", str(acme.home / f"resolver-{port}"),
            more=f"server_name: s{port}\ncluster {{ name: c, listen: 127.0.0.1:{port}, "
            f"routes: [{routes}] }}\n",
        )
        for port in ports
    ]  # fmt: skip
    line = ("auth", "account", "push", "ORDERS", "--server", servers[0].url)
    line = (*line, "--creds", credentials(acme, "boss"))
    deadline = time.monotonic() + WAIT_SECONDS
    while "on 2 servers" not in acme.run(*line).out:  # until they have found each other
        assert time.monotonic() < deadline
    servers[1].process.send_signal(signal.SIGSTOP)
    try:
        said = acme(*line, status=1)
    finally:
        servers[1].process.send_signal(signal.SIGCONT)
    assert f"✓ s{ports[0]}" in said.out
    assert "1 of 2 servers have answered" in said.err


async def test_a_user_who_was_revoked_is_refused(acme: Cli, full: NatsServer) -> None:
    push(acme, full, "ORDERS")
    alice = credentials(acme, "alice")
    async with slipstream.connect(full.url, credentials=alice) as nc:
        await nc.flush()
    acme("auth", "user", "rm", "alice", "ORDERS", "--revoke", "--force")
    push(acme, full, "ORDERS")
    with pytest.raises(AuthorizationError):
        await slipstream.connect(full.url, credentials=alice)


async def come_again_and_again(url: str, credentials: str) -> None:
    """Until it is refused: nats-server ends a connection a moment before it refuses the next one,
    for which it counts in whole seconds. What it takes in that moment it ends as well."""
    while True:
        async with slipstream.connect(url, credentials=credentials) as nc:
            with suppress(ConnectionLostError):
                await nc.flush()


async def test_credentials_that_expire_end_the_connection(acme: Cli, start: Start) -> None:
    server = start(acme)
    brief = credentials(acme, "brief")
    acme("auth", "user", "credential", brief, "alice", "--expire", "8s")
    nc = await slipstream.connect(server.url, credentials=brief, reconnect=False)
    async for _ in nc.events():
        pass  # until the connection is closed
    assert nc.is_closed
    with pytest.raises(AuthorizationError):
        await come_again_and_again(server.url, brief)
    assert "has expired" in acme("jwt", "decode", brief, status=1).err
    async with slipstream.connect(server.url, credentials=credentials(acme, "alice")) as nc:
        await nc.flush()


async def test_users_of_a_signing_key_that_was_removed_are_refused(
    acme: Cli, full: NatsServer
) -> None:
    acme("auth", "account", "keys", "add", "ORDERS", "--unscoped")
    key = json.loads(acme("auth", "account", "keys", "ls", "ORDERS", "--json").out)[0]["key"]
    sam = user(acme, "sam", "ORDERS", "--key", key)
    push(acme, full, "ORDERS")
    async with slipstream.connect(full.url, credentials=sam) as nc:
        await nc.flush()
    said = acme("auth", "account", "keys", "rm", "ORDERS", "--key", key, "--force").err
    assert "sam" in said
    push(acme, full, "ORDERS")
    with pytest.raises(AuthorizationError):
        await slipstream.connect(full.url, credentials=sam)
    assert "Cannot Connect" in acme("auth", "user", "info", "sam").out
    refused = acme("auth", "user", "credential", sam, "sam", "--force", status=1).err
    assert "servers refuse it" in refused


async def test_accounts_are_signed_again_when_an_operators_key_goes(
    acme: Cli, start: Start
) -> None:
    keys = ("auth", "operator", "keys")
    old = acme(*keys, "ls").out.strip()
    new = acme(*keys, "add").out.strip()
    removed = acme(*keys, "rm", "acme", old, "--force")
    assert "ORDERS" in removed.err
    assert acme(*keys, "ls").out.strip() == new
    issuer = json.loads(acme("auth", "account", "info", "ORDERS", "--json").out)["iss"]
    assert issuer == new
    server = start(acme)
    async with slipstream.connect(server.url, credentials=credentials(acme, "alice")) as nc:
        await nc.flush()


async def test_an_operator_that_was_restored_serves_its_users(acme: Cli, start: Start) -> None:
    backup = str(acme.home / "acme.backup")
    before = acme("auth", "operator", "generate").out
    acme("auth", "operator", "backup", "acme", backup)
    acme("auth", "operator", "rm", "acme", "--force")
    assert "there are no operators" in acme("auth", "account", "ls", status=1).err
    acme("auth", "operator", "restore", "acme", backup)
    assert acme("auth", "operator", "generate").out == before
    server = start(acme)
    later = user(acme, "later", "ORDERS")
    for path in (credentials(acme, "olga"), later):
        async with slipstream.connect(server.url, credentials=path) as nc:
            await nc.flush()


def test_the_examples_of_cheat_run_as_they_stand(offline: Cli, tmp_path: Path) -> None:
    server: NatsServer | None = None
    offline.env.pop("NATS_URL")  # the examples' context has it
    for line in EXAMPLES["auth"].splitlines():
        if line.startswith("#"):
            continue
        name, *words = shlex.split(line)
        assert name == "slipstream"
        if server is not None:
            words = [word.replace("nats://localhost:4222", server.url) for word in words]
        offline(*words)
        if "generate" in words:
            config = str(offline.home / "resolver.conf")
            server = start_nats_server(tmp_path / "server", "-c", config)
    assert server is not None
    stop_nats_server(server)
    assert SYSTEM_ACCOUNT in offline("auth", "account", "ls").out


async def test_a_bearer_token_needs_no_key(acme: Cli, start: Start) -> None:
    line = ("auth", "user", "add", "carl", "ORDERS", "--bearer", "--defaults")
    assert "--bearer" in acme(*line, status=1).err
    acme("auth", "account", "edit", "ORDERS", "--bearer")
    acme(*line, "--credential", credentials(acme, "carl"))
    server = start(acme)
    token = read_credentials(credentials(acme, "carl")).jwt
    async with slipstream.connect(server.url, user_jwt=token, sign=lambda nonce: b"") as nc:
        with pytest.raises(NoRespondersError):
            await nc.request("nobody")
