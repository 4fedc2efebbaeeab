"""TLS with clients: when it begins, who is let in, and what happens to those who are not."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import pytest

from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND
from slipstream.server import Server
from slipstream.server.options import AuthorizationOptions, TlsOptions, UserOptions
from slipstream.server.tls import openssl_cipher, server_context, spki_sha256, subject_name
from tests.fix_certificates import Authority, make_authority
from tests.server.plain_client import PlainClient, plain_client

Start = Callable[..., Server]


@pytest.fixture
def start(server_files: tuple[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a server with TLS; keywords of `TlsOptions`, and `others` of the server."""
    with ExitStack() as stack:

        def started(others: dict[str, Any] | None = None, **tls: Any) -> Server:
            cert_file, key_file = server_files
            options = TlsOptions(cert_file=cert_file, key_file=key_file, **tls)
            server = Server(store_dir=str(tmp_path), tls=options, **(others or {}))
            return stack.enter_context(server)

        yield started


def connect(client: PlainClient, options: str = '{"verbose":false}') -> list[str]:
    client.send(f"CONNECT {options}\r\n")
    return client.ping()


async def test_a_client_of_nats_py_publishes_and_fetches(
    start: Start, authority: Authority
) -> None:
    server = start()
    assert server.url.startswith("tls://")
    nc = await nats.connect(server.url, tls=authority.client_context())
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.publish("s", b"x" * 300_000)
    consumer = await js.pull_subscribe("s", "C")
    (message,) = await consumer.fetch(1)
    assert len(message.data) == 300_000
    await nc.close()


def test_info_comes_in_the_clear_and_asks_for_tls(start: Start, authority: Authority) -> None:
    with plain_client(start().port) as client:
        info = client.info()
        assert info["tls_required"]
        assert "tls_available" not in info
        client.secure(authority.client_context())
        assert connect(client) == []


def test_a_client_that_goes_on_without_tls_is_cut_off(start: Start) -> None:
    with plain_client(start().port) as client:
        client.info()
        client.send('CONNECT {"verbose":false}\r\nPING\r\n')
        assert client.is_closed()
        assert b"PONG" not in client.inbox


def test_a_client_that_says_nothing_is_cut_off_after_the_timeout(start: Start) -> None:
    with plain_client(start(timeout=SECOND // 10).port) as client:
        client.info()
        assert client.is_closed()
        assert client.inbox == b""


def test_the_time_to_authenticate_begins_after_the_handshake(
    start: Start, authority: Authority
) -> None:
    auth = AuthorizationOptions(user="ann", password="secret", timeout=SECOND // 5)
    with plain_client(start({"authorization": auth}, timeout=60 * SECOND).port) as client:
        client.info()
        assert client.is_silent(0.4)
        client.secure(authority.client_context())
        assert client.line() == "-ERR 'Authentication Timeout'"
        assert client.is_closed()


def test_with_handshake_first_nothing_is_said_before(start: Start, authority: Authority) -> None:
    with plain_client(start(handshake_first=True).port) as client:
        assert client.is_silent(0.2)
        client.secure(authority.client_context())
        assert client.info()["tls_required"]
        assert connect(client) == []


def test_handshake_first_with_a_fallback_serves_both(start: Start, authority: Authority) -> None:
    patient = start(handshake_first=True, handshake_first_fallback=60 * SECOND)
    with plain_client(patient.port) as first:
        first.secure(authority.client_context())
        first.info()
        assert connect(first) == []
    patient.stop()  # the store is for the next one
    port = start(handshake_first=True, handshake_first_fallback=SECOND // 10).port
    with plain_client(port) as later:
        later.info()
        later.secure(authority.client_context())
        assert connect(later) == []


def test_allow_non_tls_serves_both(start: Start, authority: Authority) -> None:
    port = start({"allow_non_tls": True}).port
    with plain_client(port) as plain:
        info = plain.info()
        assert info["tls_available"]
        assert "tls_required" not in info
        assert connect(plain) == []
    with plain_client(port) as secure:
        secure.info()
        secure.secure(authority.client_context())
        assert connect(secure) == []


def test_allow_non_tls_lets_a_silent_client_stay(start: Start) -> None:
    port = start({"allow_non_tls": True}, timeout=SECOND // 20).port
    with plain_client(port) as client:
        client.info()
        assert client.is_silent(0.2)
        assert connect(client) == []


def test_verify_lets_in_who_has_a_certificate_of_the_ca(
    start: Start, authority: Authority, client_files: tuple[str, str], tmp_path: Path
) -> None:
    port = start(ca_file=authority.ca_file, verify=True).port
    with plain_client(port) as client:
        assert client.info()["tls_verify"]
        client.secure(authority.client_context(*client_files))
        assert connect(client) == []
    stranger = make_authority(tmp_path, "Somebody Else").issue("ann")
    for files in ((), stranger):
        with plain_client(port) as client:
            client.info()
            client.secure(authority.client_context(*files))
            assert client.is_closed()
            assert client.inbox == b""


def test_verify_and_map_makes_a_client_the_user_that_its_certificate_names(
    start: Start, authority: Authority, client_files: tuple[str, str]
) -> None:
    users = [UserOptions(user="ann@example.com", password="unused")]
    auth = {"authorization": AuthorizationOptions(users=users)}
    server = start(auth, ca_file=authority.ca_file, verify=True, verify_and_map=True)
    with plain_client(server.port) as client:
        client.info()
        client.secure(authority.client_context(*client_files))
        assert connect(client) == []
        assert server.runtime is not None
        (session,) = server.runtime.engine.sessions.values()
        assert session.user.name == "ann@example.com"
        assert session.facts["tls_version"] == "1.3"
    with plain_client(server.port) as client:
        client.info()
        client.secure(authority.client_context(*authority.issue("bob")))
        assert connect(client) == ["-ERR 'Authorization Violation'"]


def test_a_pinned_certificate_is_the_only_one_let_in(
    start: Start, authority: Authority, client_files: tuple[str, str]
) -> None:
    der = ssl.PEM_cert_to_DER_cert(Path(client_files[0]).read_text())
    port = start(ca_file=authority.ca_file, verify=True, pinned_certs=[spki_sha256(der)]).port
    with plain_client(port) as client:
        client.info()
        client.secure(authority.client_context(*client_files))
        assert connect(client) == []
    with plain_client(port) as client:
        client.info()
        client.secure(authority.client_context(*authority.issue("bob")))
        assert client.is_closed()
        assert client.inbox == b""


def test_min_version_refuses_older_ones(start: Start, authority: Authority) -> None:
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with plain_client(start(min_version="1.3").port) as client:
        client.info()
        with pytest.raises(ssl.SSLError):
            client.secure(context)


def test_the_last_error_reaches_the_client_before_the_end(
    start: Start, authority: Authority
) -> None:
    with plain_client(start().port) as client:
        client.info()
        client.secure(authority.client_context())
        connect(client)
        client.send("NONSENSE\r\n")
        assert client.line() == "-ERR 'Unknown Protocol Operation'"
        assert client.is_closed()


def test_files_that_can_not_be_used_are_named(server_files: tuple[str, str]) -> None:
    cert, key = server_files
    with pytest.raises(ConfigError, match="error parsing X509 certificate/key pair"):
        server_context(TlsOptions(cert_file=key, key_file=cert))
    with pytest.raises(ConfigError, match=r"ca_file .* has no certificates"):
        server_context(TlsOptions(cert_file=cert, key_file=key, ca_file=key, verify=True))


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
    ],
)
def test_cipher_suites_have_the_names_of_the_standard(name: str, openssl: str) -> None:
    assert openssl_cipher(name) == openssl


def test_chosen_suites_and_curves_are_used(start: Start, authority: Authority) -> None:
    suites = ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with plain_client(start(cipher_suites=suites, curve_preferences=["CurveP384"]).port) as client:
        client.info()
        client.secure(context)
        assert isinstance(client.socket, ssl.SSLSocket)
        assert (client.socket.cipher() or ("",))[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_a_subject_is_written_as_in_rfc_2253() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "ann"),))
    assert subject_name({"subject": subject}) == "CN=ann,O=A\\, B,C=DE"
