"""`tls {}` of the client port (docs/configuration.md#tls)."""

import re

from slipstream.model.durations import MILLISECOND
from slipstream.server.config.blocks import Block, no_effect, optional, refused
from slipstream.server.config.kinds import (
    Boolean,
    File,
    Kind,
    Notes,
    Timeout,
    Wrong,
    duration,
    read_string,
    read_strings,
)
from slipstream.server.config.tree import Value
from slipstream.server.options import TlsOptions

_SHA256 = re.compile("[0-9a-f]{64}")
AUTO_FALLBACK = 50 * MILLISECOND
CIPHER_SUITES = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    }
)
CURVES = frozenset({"X25519MLKEM768", "X25519", "CurveP256", "CurveP384", "CurveP521"})


def _names(known: frozenset[str], what: str) -> Kind:
    def read(value: Value, notes: Notes) -> list[str]:
        items = value.data if isinstance(value.data, list) else [value]
        names = [read_string(item, notes) for item in items]
        if not names:
            raise Wrong("the list is empty: name at least one, or leave it out")
        for name in names:
            if name not in known:
                raise Wrong(
                    f"{name} is not a {what} to use: choose from {', '.join(sorted(known))}"
                )
        return names

    return Kind(f"list of {what}s", read)


def _read_handshake_first(value: Value, notes: Notes) -> tuple[bool, int]:
    if isinstance(value.data, bool):
        return value.data, 0
    if not isinstance(value.data, str):
        raise Wrong(f"expected a boolean, auto or a duration, found {value.describe()}")
    if value.data.lower() == "auto":
        return True, AUTO_FALLBACK
    return True, duration(value.data)


def _put_handshake_first(target: TlsOptions, found: tuple[bool, int]) -> None:
    target.handshake_first, target.handshake_first_fallback = found


def _read_version(value: Value, notes: Notes) -> str:
    version = read_string(value, notes)
    if version not in ("1.2", "1.3"):
        raise Wrong(f'unsupported TLS version "{version}": give "1.2" or "1.3"')
    return version


def _read_pinned(value: Value, notes: Notes) -> list[str]:
    pins = [pin.lower() for pin in read_strings(value, notes)]
    for pin in pins:
        if not _SHA256.fullmatch(pin):
            raise Wrong(f'"{pin}" is not the SHA-256 of a key: 64 hexadecimal digits')
    return pins


def _put_verify_and_map(target: TlsOptions, found: bool) -> None:
    target.verify_and_map = found
    target.verify = target.verify or found


TLS = Block(
    "tls",
    (
        optional("cert_file", File, "The server's certificate, PEM.", reloadable=True),
        optional("key_file", File, "Its private key, PEM.", reloadable=True),
        optional("ca_file", File, "Whom to trust for clients' certificates.", reloadable=True),
        optional("verify", Boolean, "Clients must show a certificate.", reloadable=True),
        optional(
            "verify_and_map",
            Boolean,
            "And are the user that it names.",
            put=_put_verify_and_map,
            reloadable=True,
        ),
        optional("timeout", Timeout, "How long a handshake may take.", reloadable=True),
        optional(
            "handshake_first first immediate",
            Kind("boolean, auto or duration", _read_handshake_first),
            "TLS before INFO; auto and a duration wait that long for the client to begin.",
            put=_put_handshake_first,
            reloadable=True,
        ),
        optional("min_version", Kind('"1.2" or "1.3"', _read_version), "Oldest TLS to speak."),
        optional(
            "cipher_suites",
            _names(CIPHER_SUITES, "cipher suite"),
            "Cipher suites, by their IANA names.",
            reloadable=True,
        ),
        optional(
            "curve_preferences",
            _names(CURVES, "curve"),
            "Key exchanges, best first.",
            reloadable=True,
        ),
        optional(
            "pinned_certs",
            Kind("list of SHA-256", _read_pinned),
            "Accept only clients' certificates with these keys (SPKI, 64 hex digits each).",
            reloadable=True,
        ),
        no_effect("insecure", Boolean, "Only for connections that a server makes."),
        refused("allow_insecure_cipher_suites", "Broken cipher suites."),
        refused("verify_cert_and_check_known_urls", "For routes, gateways and leaf nodes."),
        refused("certs", "Several certificates."),
        refused("connection_rate_limit", "Handshakes per second."),
        refused("ocsp_peer", "OCSP for clients' certificates."),
        refused("cert_store", "Certificates of Windows."),
        refused("cert_match", "Certificates of Windows."),
        refused("cert_match_by", "Certificates of Windows."),
        refused("cert_match_skip_invalid", "Certificates of Windows."),
        refused("ca_certs_match", "Certificates of Windows."),
    ),
    variables=False,
)
