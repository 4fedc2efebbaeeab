"""TLS from the options: certificates, versions, and the bytes of one connection.

`TlsLayer` turns what comes from the network into what the client said, and back. It does no I/O, so
that a connection decides for itself when TLS begins: after INFO, before it, or not at all
(docs/protocol/client.md#tls).
"""

import hashlib
import re
import ssl
from typing import Any

from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND
from slipstream.server.options import TlsOptions

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
_READ_BYTES = 64 * 1024
_AES = re.compile(r"AES_(128|256)_(GCM|CBC)")


class Tls:
    """What the server needs to speak TLS with clients; made anew on each reload."""

    def __init__(self, options: TlsOptions) -> None:
        """Raises `ConfigError` if a file cannot be used."""
        self.options = options
        self.context = server_context(options)
        self.timeout_seconds = options.timeout / SECOND
        self.fallback_seconds = options.handshake_first_fallback / SECOND

    def is_pinned(self, certificate: bytes | None) -> bool:
        """Whether a client's certificate (DER) is one of `pinned_certs`, where there are any."""
        pinned = self.options.pinned_certs
        return not pinned or (certificate is not None and spki_sha256(certificate) in pinned)


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """The context for accepting clients. Raises `ConfigError` if a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = _VERSIONS[options.min_version]
    try:
        context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"tls: error parsing X509 certificate/key pair: {options.cert_file} and "
            f"{options.key_file} cannot be used: {error}"
        ) from error
    if options.verify or options.verify_and_map:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            if options.ca_file:
                context.load_verify_locations(options.ca_file)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"tls: ca_file {options.ca_file} has no certificates that can be used: {error}"
            ) from error
    if options.cipher_suites:
        _set_ciphers(context, options.cipher_suites)
    for name in options.curve_preferences[:1]:
        if name not in _CURVES:
            raise ConfigError(f"tls: curve {name} is not known: choose from {', '.join(_CURVES)}")
        context.set_ecdh_curve(_CURVES[name])
    return context


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    """Set the cipher suites of TLS 1.2; those of TLS 1.3 are all good and cannot be chosen."""
    chosen = [openssl_cipher(name) for name in names if "_WITH_" in name]
    if not chosen:
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError as error:
        raise ConfigError(f"tls: none of the cipher_suites {names} can be used here") from error


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a suite, from the name that standards (and NATS) give it:
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    key, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = _AES.sub(r"AES\1_\2", cipher).replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = cipher.removesuffix("_SHA256")
    prefix = "" if key == "RSA" else key + "-"
    return (prefix + cipher).replace("_", "-")


class TlsLayer:
    """TLS of one connection."""

    def __init__(self, context: ssl.SSLContext, hub: str | None = None) -> None:
        """`hub` is the name of the server that was dialled; without one this is the server."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=hub is None, server_hostname=hub
        )
        self.ended = False  # the client says no more

    def handshake(self, data: bytes) -> bool:
        """Take handshake bytes; True once it is done. Raises `ssl.SSLError`."""
        self._incoming.write(data)
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def decrypt(self, data: bytes) -> bytes:
        """What the client said. Raises `ssl.SSLError`."""
        if data:
            self._incoming.write(data)
        chunks = []
        while not self.ended:
            try:
                chunk = self._ssl.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                chunk = b""
            if chunk:
                chunks.append(chunk)
            else:
                self.ended = True
        return b"".join(chunks)

    def encrypt(self, data: bytes) -> bytes:
        """The bytes to send for `data`."""
        view = memoryview(data)
        while view:
            view = view[self._ssl.write(view) :]
        return self.outgoing()

    def outgoing(self) -> bytes:
        """What TLS itself wants to send."""
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """The bytes that tell the client that this was all."""
        try:
            self._ssl.unwrap()
        except ssl.SSLError:
            pass  # the client has not answered, and need not
        return self.outgoing()

    def facts(self) -> dict[str, Any]:
        """What monitoring shows, and who the client's certificate says it is."""
        cipher = self._ssl.cipher()
        version = self._ssl.version() or ""
        facts: dict[str, Any] = {
            "tls_version": version.removeprefix("TLSv"),
            "tls_cipher_suite": cipher[0] if cipher else "",
        }
        certificate = self._ssl.getpeercert()
        if certificate:
            facts["tls_names"] = certificate_names(certificate)
            facts["tls_subject"] = subject_name(certificate)
            facts["tls_peer_certs"] = [self._shown(subject_name(certificate))]
        return facts

    def _shown(self, subject: str) -> dict[str, str]:
        """The client's certificate as /connz lists it."""
        data = self.peer_certificate() or b""
        return {
            "subject": subject,
            "spki_sha256": spki_sha256(data),
            "cert_sha256": hashlib.sha256(data).hexdigest(),
        }

    def peer_certificate(self) -> bytes | None:
        """The client's certificate (DER), if it showed one."""
        return self._ssl.getpeercert(binary_form=True)


def certificate_names(certificate: Any) -> list[str]:
    """Under which names a certificate's owner may be a user, the best first: its e-mail addresses,
    its DNS names, its URIs, then its subject."""
    found = []
    alternatives = certificate.get("subjectAltName", ())
    for wanted in ("email", "DNS", "URI"):
        found += [value for kind, value in alternatives if kind == wanted]
    return [*found, subject_name(certificate)]


_SHORT = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
    "serialNumber": "SERIALNUMBER",
    "emailAddress": "emailAddress",
}


def subject_name(certificate: Any) -> str:
    """A certificate's subject in the form of RFC 2253, the most special part first."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in group)
        for group in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    return re.sub(r'([,+"\\<>;])', r"\\\1", value)


def spki_sha256(certificate: bytes) -> str:
    """The SHA-256 of a certificate's public key (SubjectPublicKeyInfo), in lower hex."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()
