"""Texts that only the owner of a key can read: NaCl's box, as NKeys of kind X seal it.

A sealed text is ``xkv1``, a nonce of 24 bytes, and NaCl's box: X25519, XSalsa20 and Poly1305
(github.com/nats-io/nkeys 0.4.16). XSalsa20 is here because cryptography does not have it, and a
package that does would be one more; a megabyte takes about a second.
"""

import base64
import secrets
import struct

from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair

VERSION = b"xkv1"
NONCE_BYTES, TAG_BYTES, KEY_BYTES = 24, 16, 32
_MASK = 0xFFFF_FFFF
_CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
_DIAGONAL = (0, 5, 10, 15)
# The four words that each step of a double round mixes: columns, then rows.
_QUARTERS = (
    (0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11),
    (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14),
)  # fmt: skip


def seal(text: bytes, key: KeyPair, recipient: str) -> bytes:
    """`text` for the owner of the public key `recipient`, from the owner of `key`."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    pad = _pad(key.shared(recipient), nonce, KEY_BYTES + len(text))
    hidden = _mixed(text, pad[KEY_BYTES:])
    return VERSION + nonce + _tag(pad[:KEY_BYTES], hidden) + hidden


def unseal(sealed: bytes, key: KeyPair, sender: str, where: str) -> bytes:
    """What the owner of the public key `sender` has sealed for `key`.

    Raises `ConfigError`, about `where` it is from, if it is not that.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    head = len(VERSION) + NONCE_BYTES
    if not sealed.startswith(VERSION) or len(sealed) < head + TAG_BYTES:
        raise ConfigError(f"{where} was not sealed with an NKey: it does not begin with xkv1")
    nonce, tag, hidden = (
        sealed[len(VERSION) : head],
        sealed[head : head + TAG_BYTES],
        sealed[head + TAG_BYTES :],
    )
    pad = _pad(key.shared(sender), nonce, KEY_BYTES + len(hidden))
    try:
        Poly1305.verify_tag(pad[:KEY_BYTES], hidden, tag)
    except InvalidSignature:
        raise ConfigError(
            f"{where} cannot be read with the key of {key.public}: it was sealed for another, or "
            f"not by {sender}, or it was changed"
        ) from None
    return _mixed(hidden, pad[KEY_BYTES:])


def from_base64(data: bytes, where: str) -> bytes:
    """What base64 says. Raises `ConfigError`, about `where` it is from, if it is none."""
    try:
        return base64.b64decode(b"".join(data.split()), validate=True)
    except ValueError as error:
        raise ConfigError(f"{where} is not in base64: {error}") from error


def _tag(key: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    return Poly1305.generate_tag(key, data)


def _mixed(text: bytes, pad: bytes) -> bytes:
    size = len(text)
    number = int.from_bytes(text, "little") ^ int.from_bytes(pad[:size], "little")
    return number.to_bytes(size, "little")


def _pad(shared: bytes, nonce: bytes, size: int) -> bytes:
    """So many bytes of XSalsa20; the first 32 are the key of Poly1305."""
    inner = struct.unpack("<8I", _hashed(_hashed(shared, bytes(16)), nonce[:16]))
    found = bytearray()
    for block in range(-(-size // 64)):
        count = (block & _MASK, block >> 32)
        state = _state(inner, (*struct.unpack("<2I", nonce[16:]), *count))
        mixed = _rounds(state)
        found += struct.pack("<16I", *((a + b) & _MASK for a, b in zip(mixed, state, strict=True)))
    return bytes(found[:size])


def _hashed(key: bytes, nonce: bytes) -> bytes:
    """HSalsa20: a key of a key and 16 bytes."""
    mixed = _rounds(_state(struct.unpack("<8I", key), struct.unpack("<4I", nonce)))
    return struct.pack("<8I", *(mixed[at] for at in (*_DIAGONAL, 6, 7, 8, 9)))


def _state(key: tuple[int, ...], middle: tuple[int, ...]) -> list[int]:
    state = [0] * 16
    for at, word in zip(_DIAGONAL, _CONSTANTS, strict=True):
        state[at] = word
    state[1:5], state[6:10], state[11:15] = key[:4], middle, key[4:]
    return state


def _rounds(state: list[int]) -> list[int]:
    """Twenty rounds of Salsa20."""
    x = state.copy()
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            word = (x[a] + x[d]) & _MASK
            x[b] ^= (word << 7 | word >> 25) & _MASK
            word = (x[b] + x[a]) & _MASK
            x[c] ^= (word << 9 | word >> 23) & _MASK
            word = (x[c] + x[b]) & _MASK
            x[d] ^= (word << 13 | word >> 19) & _MASK
            word = (x[d] + x[c]) & _MASK
            x[a] ^= (word << 18 | word >> 14) & _MASK
    return x
