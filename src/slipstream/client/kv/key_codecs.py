"""Key codecs: keys of an application in the alphabet of key-value keys (ADR-54, kv-object.md 7).

A key may hold letters, digits and ``-/_=.`` only, and its tokens are what stands between dots. A
key codec works token by token, so that a watch on ``orders.*`` still means what it says behind it:
`encode_filter` leaves the wildcards alone. Codecs go where a bucket is opened:

    kv = await js.key_value("people", key_codec=Base64Keys())
    await kv.put("Åsa@home", ...)         # stored as w4VzYUBob21l
"""

import base64
import binascii
from typing import Protocol, runtime_checkable

from slipstream.client.kv.errors import InvalidKeyError

_WILDCARDS = ("*", ">")


@runtime_checkable
class KeyCodec(Protocol):
    """What turns an application's keys into stored ones and back."""

    def encode(self, key: str) -> str:
        """The stored key of `key`."""
        ...

    def decode(self, key: str) -> str:
        """The application's key behind the stored one."""
        ...

    def encode_filter(self, pattern: str) -> str:
        """The stored form of a pattern: its wildcards still match what they should."""
        ...


class PlainKeys:
    """Keys as they are."""

    def encode(self, key: str) -> str:
        return key

    def decode(self, key: str) -> str:
        return key

    def encode_filter(self, pattern: str) -> str:
        return pattern


class Base64Keys:
    """Each token in base64 (URL alphabet, no padding): any text can be a key."""

    def encode(self, key: str) -> str:
        return ".".join(self._encode_token(token) for token in key.split("."))

    def decode(self, key: str) -> str:
        return ".".join(self._decode_token(token) for token in key.split("."))

    def encode_filter(self, pattern: str) -> str:
        tokens = pattern.split(".")
        return ".".join(t if t in _WILDCARDS else self._encode_token(t) for t in tokens)

    def _encode_token(self, token: str) -> str:
        return base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()

    def _decode_token(self, token: str) -> str:
        try:
            return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidKeyError(
                f"the stored key token {token!r} is not base64 of UTF-8 text ({error}): it was "
                "written without this codec"
            ) from error


class PathKeys:
    """Keys as paths: ``/etc/app/port`` is stored as ``_root_.etc.app.port``.

    A leading slash becomes the token ``_root_``, a trailing one is dropped.
    """

    ROOT = "_root_"

    def encode(self, key: str) -> str:
        path = key.rstrip("/") if key != "/" else key
        if path.startswith("/"):
            rest = path[1:]
            path = f"{self.ROOT}/{rest}" if rest else self.ROOT
        return path.replace("/", ".")

    def decode(self, key: str) -> str:
        path = key.replace(".", "/")
        if path == self.ROOT:
            return "/"
        if path.startswith(self.ROOT + "/"):
            return path[len(self.ROOT) :]
        return path

    def encode_filter(self, pattern: str) -> str:
        return self.encode(pattern)


class ChainedKeys:
    """Several codecs, the first applied first: ``ChainedKeys(PathKeys(), Base64Keys())``."""

    def __init__(self, *codecs: KeyCodec) -> None:
        if not codecs:
            raise ValueError("a chain of key codecs needs at least one")
        self._codecs = codecs

    def encode(self, key: str) -> str:
        for codec in self._codecs:
            key = codec.encode(key)
        return key

    def decode(self, key: str) -> str:
        for codec in reversed(self._codecs):
            key = codec.decode(key)
        return key

    def encode_filter(self, pattern: str) -> str:
        for codec in self._codecs:
            pattern = codec.encode_filter(pattern)
        return pattern
