"""Monitoring over HTTPS, and what it shows of clients that come with TLS."""

import asyncio
import hashlib
import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import nats
import pytest

from slipstream.server import Server
from slipstream.server.config import load_text
from slipstream.server.options import MonitoringOptions, TlsOptions
from slipstream.server.tls import spki_sha256
from tests.fix_certificates import Authority


def read(server: Server, path: str, context: ssl.SSLContext) -> Any:
    base = server.monitoring_url.replace("127.0.0.1", "localhost")
    assert base.startswith("https://")
    with urllib.request.urlopen(base + path, context=context) as found:
        return json.loads(found.read())


@pytest.fixture
def client_der(client_files: tuple[str, str]) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(client_files[0]).read_text())


async def test_https_shows_clients_and_their_certificates(
    authority: Authority,
    server_files: tuple[str, str],
    client_files: tuple[str, str],
    client_der: bytes,
) -> None:
    tls = TlsOptions(
        cert_file=server_files[0], key_file=server_files[1], ca_file=authority.ca_file, verify=True
    )
    async with Server(tls=tls, monitoring=MonitoringOptions(https_port=-1)) as server:
        client = await nats.connect(server.url, tls=authority.client_context(*client_files))
        # Who reads needs no certificate.
        context = authority.client_context()
        (found,) = (await asyncio.to_thread(read, server, "/connz", context))["connections"]
        varz = await asyncio.to_thread(read, server, "/varz", context)
        await client.close()
    assert found["tls_version"] == "1.3"
    assert found["tls_cipher_suite"]
    (certificate,) = found["tls_peer_certs"]
    assert certificate["spki_sha256"] == spki_sha256(client_der)
    assert certificate["cert_sha256"] == hashlib.sha256(client_der).hexdigest()
    assert (varz["tls_required"], varz["tls_verify"]) == (True, True)
    assert varz["https_port"] > 0


def test_pinned_certificates_come_from_the_file() -> None:
    pin = "AB" * 32
    tls = load_text(f"tls {{ pinned_certs: [{pin}] }}").options.tls
    assert tls is not None
    assert tls.pinned_certs == [pin.lower()]
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        load_text("tls { pinned_certs: [abc] }")
