"""Publishing stored messages again under another subject
(docs/protocol/streams.md#republishing)."""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.configurations import Republish
from slipstream.model.header_fields import (
    NATS_LAST_SEQUENCE,
    NATS_MSG_SIZE,
    NATS_SEQUENCE,
    NATS_STREAM,
    NATS_SUBJECT,
    NATS_TIME_STAMP,
)
from slipstream.model.times import time_text
from slipstream.wire.headers import with_fields
from slipstream.wire.subjects import matches
from slipstream.wire.transforms import Transform

if TYPE_CHECKING:
    from slipstream.engine.session.message import Inbound
    from slipstream.engine.stream.stream import Stream


class Republisher:
    """Sends what became durable to the configured destination.

    A message is noted as it is stored, for by the time that it is durable the limits may have
    dropped it again.
    """

    def __init__(self, stream: "Stream", config: Republish) -> None:
        self._stream = stream
        self._source = config.src.encode()
        self._transform = Transform(config.src, config.dest, stream.engine.random)
        self._headers_only = config.headers_only
        self._noted: list[tuple[int, bytes, bytes, bytes]] = []  # seq, subject, header, body

    def note(self, seq: int, subject: bytes, message: "Inbound", previous: int) -> None:
        """Message `seq` is stored under `subject`, where `previous` (0: none) was the last one."""
        if not matches(self._source, subject):
            return
        stream = self._stream
        fields = [
            (NATS_STREAM, stream.name.encode()),
            (NATS_SUBJECT, subject),
            (NATS_SEQUENCE, b"%d" % seq),
            (NATS_TIME_STAMP, time_text(stream.clock.now).encode()),
            (NATS_LAST_SEQUENCE, b"%d" % previous),
        ]
        body = message.body()
        if self._headers_only:
            fields.append((NATS_MSG_SIZE, b"%d" % len(body)))
            body = b""
        self._noted.append((seq, subject, with_fields(message.header(), fields), body))

    def publish(self, last: int) -> None:
        """Everything up to `last` is durable: republish what was noted."""
        noted = self._noted
        self._noted = []
        for entry in noted:
            seq, subject, header, body = entry
            if seq > last:
                self._noted.append(entry)
            else:
                self._stream.account.send(self._transform.map(subject), b"", header, body)
