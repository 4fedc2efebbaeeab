"""The first bytes of a connection that a proxy may have made for a client, before anybody else
reads them.

Who may speak for others is one of two: a server of the group that this one leads, which proves it
(`relay_proof`); and with `proxy_protocol` everybody who reaches the port. A header from anybody
else goes on to the client's session as what it is there: not a NATS operation. Bytes that begin no
header go on at once, and the connection has its socket to itself from then on.
"""

import asyncio
from enum import Enum, auto
from secrets import token_bytes
from typing import cast

from slipstream.errors import ProtocolError
from slipstream.server.connection import Connection
from slipstream.server.proxy_header import Address, ProxyHeader, may_begin, read_header
from slipstream.server.relay_proof import (
    NONCE_SIZE,
    PROOF_SIZE,
    challenge,
    follower_of,
    is_announced,
    is_ours,
    is_proved,
)

HEADER_SECONDS_MAX = 2.0  # from its first byte on


class _Stage(Enum):
    HEADER = auto()
    PROOF = auto()
    DONE = auto()


class Proxied(asyncio.Protocol):
    """Stands before a `connection` until it is known for whom that was made. `key` is what the
    group's servers prove themselves with, "" for none; `trusts_all` is `proxy_protocol`."""

    def __init__(self, connection: Connection, key: bytes, trusts_all: bool) -> None:
        self._connection = connection
        self._key = key
        self._trusts_all = trusts_all
        self._stage = _Stage.HEADER
        self._data = b""
        self._header = b""  # that waits for its proof
        self._client: Address | None = None  # that it names
        self._follower = ""  # who has written it
        self._nonce = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet whoever it is: the header comes before all that a client says."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one, too
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes from the network."""
        if self._connection.is_ending:
            return
        self._data += data
        try:
            while self._stage is not _Stage.DONE and self._step():
                pass
        except ProtocolError as error:
            self._refuse(str(error))
            return
        if self._stage is _Stage.DONE:
            self._go_on()
        elif self._timer is None:
            loop = self._connection.runtime.loop
            self._timer = loop.call_later(HEADER_SECONDS_MAX, self._wait_no_more)

    def _step(self) -> bool:
        """Act on what has come; False if more has to come first. Raises `ProtocolError`."""
        if self._stage is _Stage.PROOF:
            return self._take_proof()
        if not may_begin(self._data, lines=self._trusts_all):
            self._stage = _Stage.DONE
            return True
        if not self._data:
            return False
        header = read_header(self._data)
        if header is None:
            return False
        self._take_header(header)
        return True

    def _take_header(self, header: ProxyHeader) -> None:
        """Believe a header, ask for its proof, or leave it to the session. Raises
        `ProtocolError`."""
        raw = self._data[: header.size]
        if self._key and is_ours(header):
            if not is_announced(self._key, raw):
                raise ProtocolError("who wrote it does not know the secret of this group")
            self._header, self._client = raw, header.client
            self._follower = follower_of(header)
            self._nonce = token_bytes(NONCE_SIZE)
            self._data = self._data[header.size :]
            assert self._transport is not None
            self._transport.write(challenge(self._nonce))
            self._stage = _Stage.PROOF
            return
        self._stage = _Stage.DONE
        if self._trusts_all:
            self._data = self._data[header.size :]
            if header.client is not None:
                self._connection.speaks_for(*header.client)

    def _take_proof(self) -> bool:
        if len(self._data) < PROOF_SIZE:
            return False
        proof, self._data = self._data[:PROOF_SIZE], self._data[PROOF_SIZE:]
        if not is_proved(self._key, self._nonce, self._header, proof):
            raise ProtocolError("it is a recorded one, or its sender does not know the secret")
        self._stop_timer()
        self._stage = _Stage.HEADER  # the client may have come to that server by a proxy, too
        connection = self._connection
        if self._client is not None:
            connection.speaks_for(*self._client)
        connection.brought_by = connection.brought_by or self._follower  # who is at its other end
        connection.greet_again()
        return True

    def _go_on(self) -> None:
        """The connection reads for itself from here on."""
        self._stop_timer()
        assert self._transport is not None
        self._transport.set_protocol(self._connection)
        if self._data:
            self._connection.data_received(self._data)

    def _wait_no_more(self) -> None:
        self._timer = None
        if self._stage is _Stage.PROOF:
            self._refuse("its sender does not prove that it is a server of this group")
        else:  # it was none: the session answers what came
            self._go_on()

    def _refuse(self, why: str) -> None:
        self._stop_timer()
        self._connection.refuse(f"Header of the PROXY protocol refused: {why}")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- what else asyncio calls -----------------------------------------------------------------

    def pause_writing(self) -> None:
        """The peer takes less than it is sent."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The peer has taken what waited for it."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has gone."""
        self._stop_timer()
        self._connection.connection_lost(exc)
