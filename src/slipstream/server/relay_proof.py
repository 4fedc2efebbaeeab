"""How a server of a group proves to the leader that it speaks for a client.

    follower                                     leader
                                           <-    what every client is sent, if anything is
    header of the PROXY protocol, MAC      ->    says nothing more unless the MAC is right
                                           <-    CHALLENGE   signature, nonce
    PROOF   MAC over the nonce and header  ->    greets the client, whose address it knows now

The follower drops all up to the nonce, and brings what follows to the client. MACs are HMAC-SHA256
under a key that comes from what the group's servers share, which never crosses the wire, and from
a token that the leader puts into the group's log: where certificates alone prove who a server is,
the token is what only they know. What is recorded and sent again ends at the nonce, which is fresh.
"""

import hmac

from slipstream.errors import ProtocolError
from slipstream.server.proxy_header import (
    SIGNATURE,
    Address,
    ProxyHeader,
    extension_of,
    make_header,
)

NONCE_SIZE = 32
PROOF_SIZE = 32
TOKEN_SIZE = 16
CHALLENGE_SIZE = len(SIGNATURE) + NONCE_SIZE
_EXTENSION = 0xE5  # of those that the PROXY protocol leaves to who uses it
_FOLLOWER_EXTENSION = 0xE6  # by whose connection the client comes; the MAC covers it, too
_OURS = b"slipstream"  # others may use the same number
_EXTENSION_SIZE = len(_OURS) + PROOF_SIZE


def relay_key(secret: bytes, token: str) -> bytes:
    """The key, from what the servers of a group share and the leader's token; "" without one."""
    return _mac(secret, b"relayed clients", token.encode()) if token else b""


def announce(key: bytes, client: Address, server: Address, follower: str) -> bytes:
    """The header for a client that is connected to the server of that name at the address
    `server`."""
    extensions = {_FOLLOWER_EXTENSION: follower.encode(), _EXTENSION: _OURS + bytes(PROOF_SIZE)}
    unproved = make_header(client, server, extensions)
    return unproved[:-PROOF_SIZE] + _mac(key, b"header", unproved[:-PROOF_SIZE])


def is_ours(header: ProxyHeader) -> bool:
    """Whether a header says that a server of a group has written it."""
    found = extension_of(header, _EXTENSION)
    return len(found) == _EXTENSION_SIZE and found.startswith(_OURS)


def follower_of(header: ProxyHeader) -> str:
    """Which server has written a header that `is_ours`; "" for one of an earlier version."""
    return extension_of(header, _FOLLOWER_EXTENSION).decode(errors="replace")


def is_announced(key: bytes, header: bytes) -> bool:
    """Whether the bytes of a header that `is_ours` were made with this key, now or earlier."""
    mac = _mac(key, b"header", header[:-PROOF_SIZE])
    return hmac.compare_digest(header[-PROOF_SIZE:], mac)


def challenge(nonce: bytes) -> bytes:
    """What the leader asks."""
    return SIGNATURE + nonce


def prove(key: bytes, nonce: bytes, header: bytes) -> bytes:
    """What the follower answers."""
    if len(nonce) != NONCE_SIZE:
        raise ProtocolError("a challenge has another size")
    return _mac(key, b"proof", nonce + header)


def is_proved(key: bytes, nonce: bytes, header: bytes, proof: bytes) -> bool:
    """Whether the answer to `nonce` is right."""
    return hmac.compare_digest(proof, prove(key, nonce, header))


def _mac(key: bytes, label: bytes, body: bytes) -> bytes:
    return hmac.digest(key, label + b"\0" + body, "sha256")
