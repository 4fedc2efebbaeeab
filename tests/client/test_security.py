"""Who we are, over what, and what we may: passwords, tokens, keys, certificates, permissions."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import slipstream
from slipstream.client import (
    AuthorizationError,
    ConnectError,
    CredentialsError,
    Identity,
    PermissionsError,
)
from slipstream.client.auth import KeyPair, read_credentials, read_seed
from slipstream.client.events import ErrorEvent
from tests.client.jwts import make_operator_mode, new_seed
from tests.client.own_server import OwnServer
from tests.fix_certificates import Authority

MakeServer = Callable[[str], OwnServer]


@pytest.fixture
def make_nats_server(tmp_path: Path) -> Iterator[MakeServer]:
    """nats-server alone: Slipstream's configuration refuses NKeys and JWTs."""
    started: list[OwnServer] = []

    def make(config: str) -> OwnServer:
        started.append(OwnServer("nats-server", tmp_path / "server", config))
        return started[-1].start()

    yield make
    for server in started:
        server.stop()


async def test_user_and_password_come_from_options_or_the_url(make_server: MakeServer) -> None:
    server = make_server("authorization { user: me, password: s3cret }")
    async with await slipstream.connect(server.url, user="me", password="s3cret") as nc:
        await nc.flush()
    async with await slipstream.connect(f"nats://me:s3cret@{server.address}") as nc:
        await nc.flush()
    with pytest.raises(AuthorizationError, match="Authorization Violation") as caught:
        await slipstream.connect(server.url, user="me", password="wrong")
    assert "wrong" not in str(caught.value)


async def test_a_token_comes_from_options_a_function_or_the_url(make_server: MakeServer) -> None:
    server = make_server("authorization { token: t0ken }")
    for token in ("t0ken", lambda: "t0ken"):
        async with await slipstream.connect(server.url, token=token) as nc:
            await nc.flush()
    async with await slipstream.connect(f"nats://t0ken@{server.address}") as nc:
        await nc.flush()
    with pytest.raises(AuthorizationError):
        await slipstream.connect(server.url)


async def test_an_nkey_signs_the_servers_nonce(
    make_nats_server: MakeServer, tmp_path: Path
) -> None:
    seed = new_seed("U")
    key = KeyPair(seed)
    server = make_nats_server(f"authorization {{ users: [{{ nkey: {key.public} }}] }}")
    path = tmp_path / "user.nk"
    path.write_text(f"# my key\n{seed}\n")
    for given in (seed, path):
        async with await slipstream.connect(server.url, nkey_seed=given) as nc:
            await nc.flush()
    async with await slipstream.connect(server.url, nkey=key.public, sign=key.sign) as nc:
        await nc.flush()
    for identity in (
        lambda nonce: Identity(seed=seed),
        lambda nonce: Identity(nkey=key.public, signature=key.sign(nonce)),
    ):
        async with await slipstream.connect(server.url, authenticate=identity) as nc:
            await nc.flush()
    with pytest.raises(AuthorizationError):
        await slipstream.connect(server.url, nkey_seed=new_seed("U"))


async def test_a_credentials_file_proves_a_user_in_operator_mode(
    make_nats_server: MakeServer, tmp_path: Path
) -> None:
    mode = make_operator_mode(tmp_path)
    server = make_nats_server(mode.config)
    async with await slipstream.connect(server.url, credentials=mode.credentials) as nc:
        await nc.flush()
    key = KeyPair(mode.user_seed)
    async with await slipstream.connect(
        server.url, user_jwt=lambda: mode.user_jwt, sign=key.sign
    ) as nc:
        await nc.flush()
    # What stands in such a file may be given itself, or found out at each connect.
    for options in (
        {"credentials": mode.credentials.read_text()},
        {"authenticate": lambda nonce: Identity(jwt=mode.user_jwt, seed=mode.user_seed)},
    ):
        async with await slipstream.connect(server.url, **options) as nc:
            await nc.flush()
    with pytest.raises(CredentialsError, match="the text given as credentials has no user NKey"):
        await slipstream.connect(
            server.url, credentials=mode.credentials.read_text().partition("USER NKEY")[0]
        )


def test_an_nkey_that_was_copied_wrongly_is_refused(tmp_path: Path) -> None:
    seed = new_seed("U")
    with pytest.raises(CredentialsError, match="checksum"):
        KeyPair(seed[:10] + ("A" if seed[10] != "A" else "B") + seed[11:])
    with pytest.raises(CredentialsError, match="begins with S"):
        KeyPair(KeyPair(seed).public)
    with pytest.raises(CredentialsError, match="cannot read"):
        read_credentials(tmp_path / "missing.creds")
    (tmp_path / "empty").write_text("")
    with pytest.raises(CredentialsError, match="no user JWT"):
        read_credentials(tmp_path / "empty")
    with pytest.raises(CredentialsError, match="no NKey seed"):
        read_seed(tmp_path / "empty")


def test_keys_are_spelled_as_the_nkeys_package_spells_them() -> None:
    nkeys = pytest.importorskip("nkeys")
    seed = new_seed("U")
    theirs = nkeys.from_seed(seed.encode())
    assert KeyPair(seed).public == theirs.public_key.decode()
    assert KeyPair(seed).sign(b"nonce") == theirs.sign(b"nonce")


# -- TLS ---------------------------------------------------------------------------------------


@pytest.fixture
def tls_block(authority: Authority, server_files: tuple[str, str]) -> str:
    """What a configuration says of the server's certificate."""
    certificate, key = server_files
    return f'cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.ca_file}"'


async def round_trip(nc: slipstream.Connection) -> None:
    subscription = await nc.subscribe(nc.new_inbox())
    await nc.publish(subscription.subject, b"x" * 300_000)
    assert len((await subscription.next(5)).data) == 300_000


async def test_tls_begins_after_the_servers_info(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block} }}")
    async with await slipstream.connect(server.url, tls_ca=authority.ca_file) as nc:
        await round_trip(nc)
    tls_url = f"tls://localhost:{server.port}"
    async with await slipstream.connect(tls_url, tls=authority.client_context()) as nc:
        await round_trip(nc)
    with pytest.raises(ConnectError, match=r"(?i)certificate"):
        await slipstream.connect(server.url, tls=True)  # signed by nobody whom we trust


async def test_tls_can_come_before_anything_else(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block}, handshake_first: true }}")
    async with await slipstream.connect(
        server.url, tls_ca=authority.ca_file, tls_handshake_first=True
    ) as nc:
        await round_trip(nc)


async def test_a_certificate_can_be_asked_of_us(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block}, verify: true }}")
    certificate, key = authority.issue("alice")
    async with await slipstream.connect(
        server.url, tls_ca=authority.ca_file, tls_certificate=certificate, tls_key=key
    ) as nc:
        await round_trip(nc)
    with pytest.raises(ConnectError):
        await slipstream.connect(server.url, tls_ca=authority.ca_file)


def locked(path: str, password: bytes) -> str:
    """A copy of a key file that needs a password."""
    key = load_pem_private_key(Path(path).read_bytes(), None)
    copy = Path(path).with_suffix(".locked")
    encryption = BestAvailableEncryption(password)
    copy.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return str(copy)


async def test_the_key_of_a_certificate_may_have_a_password(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block}, verify: true }}")
    certificate, plain = authority.issue("locked")
    key = locked(plain, b"open sesame")
    files = {"tls_ca": authority.ca_file, "tls_certificate": certificate, "tls_key": key}
    async with await slipstream.connect(server.url, tls_key_password="open sesame", **files) as nc:
        await round_trip(nc)
    with pytest.raises(ConnectError, match="the TLS files cannot be used"):
        await slipstream.connect(server.url, tls_key_password="wrong", **files)


async def test_the_servers_name_is_checked(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block} }}")
    with pytest.raises(ConnectError, match=r"(?i)hostname|match"):
        await slipstream.connect(
            server.url, tls_ca=authority.ca_file, tls_hostname="elsewhere.example"
        )


async def test_who_asks_for_tls_never_falls_back_to_plain(server_url: str) -> None:
    with pytest.raises(ConnectError, match="offers no TLS"):
        await slipstream.connect(server_url, tls=True, user="me", password="s3cret")


async def test_tls_comes_back_after_a_restart(
    make_server: MakeServer, authority: Authority, tls_block: str
) -> None:
    server = make_server(f"tls {{ {tls_block} }}")
    async with await slipstream.connect(server.url, tls_ca=authority.ca_file) as nc:
        subscription = await nc.subscribe("a")
        await nc.flush()
        await server.astop()
        await server.astart()
        await nc.publish("a", b"again")
        assert (await subscription.next(10)).data == b"again"


# -- permissions -------------------------------------------------------------------------------

PERMISSIONS = """
    authorization { users: [ { user: u, password: p, permissions: {
        publish: { deny: ["secret.>"] }, subscribe: { deny: ["secret.>"] } } } ] }
"""


async def test_a_forbidden_subscription_is_told_to_whoever_iterates(
    make_server: MakeServer,
) -> None:
    server = make_server(PERMISSIONS)
    async with await slipstream.connect(server.url, user="u", password="p") as nc:
        allowed = await nc.subscribe("open")
        forbidden = await nc.subscribe("secret.a", queue="q")
        with pytest.raises(PermissionsError, match=r"subscribe 'secret\.a' with queue 'q'"):
            await forbidden.next(5)
        with pytest.raises(PermissionsError):
            _ = [m async for m in forbidden]
        await nc.publish("open")
        await allowed.next(5)
        assert nc.stats.subscriptions == 1


async def test_a_forbidden_request_is_told_to_whoever_asks(make_server: MakeServer) -> None:
    server = make_server(PERMISSIONS)
    async with await slipstream.connect(server.url, user="u", password="p") as nc:
        with pytest.raises(PermissionsError, match=r"publish 'secret\.b'") as caught:
            await nc.request("secret.b", timeout=30)
        assert (caught.value.operation, caught.value.subject) == ("publish", "secret.b")


async def test_a_forbidden_publish_is_an_event(make_server: MakeServer) -> None:
    server = make_server(PERMISSIONS)
    async with await slipstream.connect(server.url, user="u", password="p") as nc:
        errors: list[Exception] = []
        nc.on(ErrorEvent, lambda event: errors.append(event.error))
        await nc.publish("secret.c")
        await nc.flush()
        assert [type(error) for error in errors] == [PermissionsError]


async def test_answers_need_a_permission_for_the_inbox(make_server: MakeServer) -> None:
    server = make_server(
        """authorization { users: [ { user: u, password: p, permissions: {
            publish: ">", subscribe: ["mine.>", "service"] } } ] }"""
    )
    async with await slipstream.connect(server.url, user="u", password="p") as nc:
        with pytest.raises(PermissionsError, match="_INBOX"):
            await nc.request("service", timeout=30)
    async with await slipstream.connect(
        server.url, user="u", password="p", inbox_prefix="mine.inbox"
    ) as nc:
        await nc.subscribe("service", handler=lambda m: m.respond(b"ok"))
        assert (await nc.request("service")).data == b"ok"


async def test_what_proves_us_may_be_unreadable_for_a_while(make_server: MakeServer) -> None:
    server = make_server("authorization { token: t0ken }")
    answers = iter(["t0ken", OSError("no vault"), OSError("no vault"), "t0ken"])

    def token() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async with await slipstream.connect(server.url, token=token, reconnect_wait=0.001) as nc:
        await nc.reconnect()
        await nc.flush()

    def fail() -> str:
        raise OSError("no vault")

    with pytest.raises(CredentialsError, match="token raised: no vault"):
        await slipstream.connect(server.url, token=fail)
