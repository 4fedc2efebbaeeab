"""How two servers of a group prove to each other that they share its secret, without sockets.

    dialler                                  who accepts
    HELLO    greeting, MAC          ->       says nothing unless the MAC is right
                                    <-       WELCOME   greeting, MAC over both greetings
    PROOF    MAC over all of that   ->

A greeting has a fresh nonce of 32 bytes, so that neither side takes a recorded proof for a new one.
MACs are HMAC-SHA256 under the secret, which never crosses the wire; each says for which of the
three messages it is, so that none can be sent back as an answer. Who dials has to show that it
knows the secret before it hears a single byte: what is recorded and sent again gets a WELCOME and
ends there. From the secret and both greetings each direction gets a key for its frames (`frames`).

Where TLS shows certificates of both sides, the secret may be empty.
"""

import hashlib
import hmac
import struct
from enum import Enum, auto

import msgspec

from slipstream.errors import Error

VERSION = 2  # of what follows the greeting
NONCE_SIZE = 32
_MAC_SIZE = 32
_HEAD = struct.Struct("<4sBH")  # magic, version, size of the greeting
_MAGIC = b"SLGP"
_GREETING_MAX = 2048


class StrangerError(Error):
    """Who is at the other end has not shown that it is a server of this group."""


class Standing(Enum):
    """What a server has in its store."""

    EMPTY = "empty"  # nothing: it was never in a group, or has lost what it had
    JOINING = "joining"  # it is no member of the group yet
    NEW = "new"  # it is in a group, and has promised nothing yet
    KEPT = "kept"  # what it has promised


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """Who a server says that it is."""

    cluster: str
    name: str
    standing: Standing
    members: tuple[str, ...]  # of its group; empty while it is in none
    nonce: bytes
    step: int = 0  # of the members' changes
    register: str = ""  # where it is, outside of the group


class _Stage(Enum):
    HELLO = auto()
    WELCOME = auto()
    PROOF = auto()
    DONE = auto()


class Handshake:
    """One side of it. `feed` takes what has come, `take` gives what is to be sent."""

    def __init__(self, secret: bytes, mine: Greeting, dials: bool) -> None:
        self.peer: Greeting | None = None  # once it is proved
        self._secret = secret
        self._dials = dials
        self._data = bytearray()
        self._out: list[bytes] = []
        self._transcript = b""
        self._other: Greeting | None = None
        self._mine = msgspec.msgpack.encode(mine)
        self._stage = _Stage.WELCOME if dials else _Stage.HELLO
        if dials:
            self._say(b"hello", self._mine)

    @property
    def is_done(self) -> bool:
        """Whether both sides know each other; `rest` may have the first frames."""
        return self._stage is _Stage.DONE

    @property
    def rest(self) -> bytes:
        """What came after the handshake."""
        return bytes(self._data)

    def take(self) -> bytes:
        """What is to be sent."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def keys(self) -> tuple[bytes, bytes]:
        """For frames that are sent, and for those that are received."""
        dialler, other = (self._mac(label, b"") for label in (b"from dialler", b"to dialler"))
        return (dialler, other) if self._dials else (other, dialler)

    def feed(self, data: bytes) -> None:
        """Bytes have come. Raises `StrangerError`."""
        self._data += data
        while not self.is_done:
            found = self._next()
            if found is None:
                return
            self._handle(*found)

    def _next(self) -> tuple[bytes, bytes] | None:
        """The next message and its MAC, once it is there."""
        head = bytes(self._data[: _HEAD.size])
        if not _MAGIC.startswith(head[:4]):
            raise StrangerError("it does not speak the protocol of groups")
        if len(head) < _HEAD.size:
            return None
        _, version, size = _HEAD.unpack(head)
        if version != VERSION:
            raise StrangerError(
                f"it speaks version {version} of the protocol, this server version {VERSION}: "
                "have all servers of the group run versions that go together"
            )
        if size > _GREETING_MAX:
            raise StrangerError("it does not speak the protocol of groups")
        end = _HEAD.size + size + _MAC_SIZE
        if len(self._data) < end:
            return None
        body, mac = (
            bytes(self._data[_HEAD.size : end - _MAC_SIZE]),
            bytes(self._data[end - _MAC_SIZE : end]),
        )
        del self._data[:end]
        return body, mac

    def _handle(self, body: bytes, mac: bytes) -> None:
        label = self._stage.name.lower().encode()
        if not hmac.compare_digest(mac, self._mac(label, body)):
            raise StrangerError(
                "it does not know the secret: give all servers of the group the same user and "
                "password in cluster.authorization"
            )
        self._heard(label, body)
        if self._stage is not _Stage.PROOF:
            try:
                self._other = msgspec.msgpack.decode(body, type=Greeting)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise StrangerError("its greeting cannot be read") from error
            if len(self._other.nonce) != NONCE_SIZE:
                raise StrangerError("its greeting cannot be read")
        if self._stage is _Stage.HELLO:
            self._say(b"welcome", self._mine)
            self._stage = _Stage.PROOF
            return
        if self._stage is _Stage.WELCOME:
            self._say(b"proof", b"")
        self.peer = self._other
        self._stage = _Stage.DONE

    def _say(self, label: bytes, body: bytes) -> None:
        head = _HEAD.pack(_MAGIC, VERSION, len(body))
        self._out.append(head + body + self._mac(label, body))
        self._heard(label, body)

    def _heard(self, label: bytes, body: bytes) -> None:
        """Both sides have this in the same order."""
        self._transcript = hashlib.sha256(self._transcript + self._mac(label, body)).digest()

    def _mac(self, label: bytes, body: bytes) -> bytes:
        said = self._transcript + len(label).to_bytes(1, "little") + label + body
        return hmac.digest(self._secret, said, "sha256")
