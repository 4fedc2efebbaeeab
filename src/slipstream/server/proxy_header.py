"""Headers of the PROXY protocol, versions 1 and 2, as bytes: for whom a connection was made.

Who brings a client's bytes to a server writes a header before them, once. Version 1 is a line:

    PROXY TCP4 192.0.2.7 198.51.100.1 50312 4222\\r\\n

Version 2 is binary; numbers are big-endian, the size counts what follows it:

    signature 12 bytes, version and command u8, family u8, size u16, addresses, extensions
    extension   type u8, size u16, value

Nothing here decides whether to believe a header.
"""

import socket
import struct
from typing import NamedTuple

from slipstream.errors import ProtocolError

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEADER_BYTES_MAX = 8 * 1024  # of version 2, which may have 65,551; those in use have a few hundred
_HEAD = struct.Struct(">12sBBH")
_EXTENSION = struct.Struct(">BH")
_PORTS = struct.Struct(">HH")
_VERSION = 2
_LOCAL, _PROXY = 0, 1  # commands: the proxy speaks for itself, or for a client
_UNKNOWN, _IPV4, _IPV6 = 0, 1, 2  # families
_STREAM = 1
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}
_SYSTEMS = {_IPV4: socket.AF_INET, _IPV6: socket.AF_INET6}
_LINE = b"PROXY "
_LINE_BYTES_MAX = 107
_LINE_WORDS = 6
_LINE_FAMILIES = {b"TCP4": socket.AF_INET, b"TCP6": socket.AF_INET6}
_PORT_MAX = 65_535


class Address(NamedTuple):
    """An end of a connection."""

    host: str
    port: int


class ProxyHeader(NamedTuple):
    """What a header says. `client` is None where it names nobody: the proxy speaks for itself, or
    does not know."""

    client: Address | None
    size: int  # bytes; the client's own follow
    extensions: bytes = b""


def may_begin(data: bytes, *, lines: bool) -> bool:
    """Whether a header begins with `data`, or is cut off by its end; of version 1 with `lines`."""
    return any(
        data.startswith(begin) or begin.startswith(data)
        for begin in ((SIGNATURE, _LINE) if lines else (SIGNATURE,))
    )


def read_header(data: bytes) -> ProxyHeader | None:
    """The header that `data` begins with; None while it is not complete. Raises `ProtocolError`
    for what is none."""
    if data[:1] == _LINE[:1]:
        return _read_line(data)
    if not may_begin(data, lines=False):
        raise ProtocolError("a header of the PROXY protocol was expected, and begins otherwise")
    if len(data) < _HEAD.size:
        return None
    _, kind, family, rest = _HEAD.unpack_from(data)
    size = _HEAD.size + rest
    if kind >> 4 != _VERSION:
        raise ProtocolError(f"its version is {kind >> 4}: send version 2, or 1 as text")
    if kind & 15 not in (_LOCAL, _PROXY):
        raise ProtocolError(f"its command is {kind & 15}, which is neither LOCAL nor PROXY")
    if size > HEADER_BYTES_MAX:
        raise ProtocolError(
            f"it has {size} bytes, and {HEADER_BYTES_MAX} are taken: send fewer extensions"
        )
    if len(data) < size:
        return None
    body = data[_HEAD.size : size]
    if kind & 15 == _LOCAL or family >> 4 == _UNKNOWN:
        return ProxyHeader(None, size)
    return _read_addresses(family, body, size)


def _read_addresses(family: int, body: bytes, size: int) -> ProxyHeader:
    length = _ADDRESS_BYTES.get(family >> 4)
    if length is None or family & 15 != _STREAM:
        raise ProtocolError(
            f"it is about connections of the kind 0x{family:02x}: send it for TCP over IPv4 or IPv6"
        )
    end = 2 * length + _PORTS.size
    if len(body) < end:
        raise ProtocolError(f"its addresses have {len(body)} bytes, and need {end}")
    host = socket.inet_ntop(_SYSTEMS[family >> 4], body[:length])
    port, _ = _PORTS.unpack_from(body, 2 * length)
    return ProxyHeader(Address(host, port), size, body[end:])


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= _LINE_BYTES_MAX:
            raise ProtocolError(f"its line has more than {_LINE_BYTES_MAX} bytes")
        return None
    size = end + 2
    words = data[:end].split(b" ")
    if words[:2] == [b"PROXY", b"UNKNOWN"]:
        return ProxyHeader(None, size)
    family = _LINE_FAMILIES.get(words[1]) if len(words) == _LINE_WORDS else None
    if words[0] != b"PROXY" or family is None:
        raise ProtocolError(
            "its line is not PROXY, TCP4 or TCP6, two addresses and two ports, with a space between"
        )
    hosts = [_host_of(family, word) for word in words[2:4]]
    ports = [_port_of(word) for word in words[4:]]
    return ProxyHeader(Address(hosts[0], ports[0]), size)


def _host_of(family: socket.AddressFamily, word: bytes) -> str:
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, word.decode("ascii")))
    except (OSError, ValueError) as error:
        raise ProtocolError(f"its address {word!r} is none of its family") from error


def _port_of(word: bytes) -> int:
    if not word.isdigit() or len(word) > len(str(_PORT_MAX)) or int(word) > _PORT_MAX:
        raise ProtocolError(f"its port {word!r} is not a number up to {_PORT_MAX}")
    return int(word)


def extension_of(header: ProxyHeader, kind: int) -> bytes:
    """The value of the first extension of a `kind`; "" for none, and where they are malformed."""
    rest = header.extensions
    while len(rest) >= _EXTENSION.size:
        found, size = _EXTENSION.unpack_from(rest)
        end = _EXTENSION.size + size
        if found == kind and end <= len(rest):
            return rest[_EXTENSION.size : end]
        rest = rest[end:]
    return b""


def make_header(client: Address, server: Address, extensions: dict[int, bytes]) -> bytes:
    """A header of version 2 for the connection of a client to a server. Addresses of different
    families, and those that are none, are said as nobody's. Raises `ProtocolError` if it is too
    large."""
    family, addresses = _addresses(client, server)
    parts = [addresses]
    for kind, value in extensions.items():
        parts += [_EXTENSION.pack(kind, len(value)), value]
    body = b"".join(parts)
    if _HEAD.size + len(body) > HEADER_BYTES_MAX:
        raise ProtocolError("a header of the PROXY protocol has too many extensions")
    return _HEAD.pack(SIGNATURE, _VERSION << 4 | _PROXY, family, len(body)) + body


def _addresses(client: Address, server: Address) -> tuple[int, bytes]:
    for family, system in _SYSTEMS.items():
        try:
            hosts = [
                socket.inet_pton(system, end.host.partition("%")[0]) for end in (client, server)
            ]
        except OSError:
            continue
        return family << 4 | _STREAM, b"".join(hosts) + _PORTS.pack(client.port, server.port)
    return _UNKNOWN, b""
