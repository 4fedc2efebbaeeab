"""Publishing stored messages again under another subject (spec streams.md section 10)."""

from typing import TYPE_CHECKING

from slipstream.engine.rfc3339 import time_text
from slipstream.engine.stream_config import Republish
from slipstream.log.record import Record
from slipstream.wire.headers import with_fields
from slipstream.wire.subjects import matches
from slipstream.wire.transforms import Transform

if TYPE_CHECKING:
    from slipstream.engine.stream import Stream


class Republisher:
    """Sends what became durable to the configured destination."""

    def __init__(self, stream: "Stream", config: Republish) -> None:
        self._stream = stream
        self._source = config.src.encode()
        self._transform = Transform(config.src, config.dest)
        self._headers_only = config.headers_only
        self._record = Record()

    def publish(self, first: int, last: int) -> None:
        """Republish the messages from `first` to `last`."""
        stream = self._stream
        record = self._record
        seq = first
        while stream.log.next(seq, None, record) and record.seq <= last:
            seq = record.seq + 1
            if not matches(self._source, record.subject):
                continue
            before = stream.log.last_of(record.subject, record.seq - 1) if record.seq > 1 else 0
            fields = [
                (b"Nats-Stream", stream.name.encode()),
                (b"Nats-Subject", record.subject),
                (b"Nats-Sequence", b"%d" % record.seq),
                (b"Nats-Time-Stamp", time_text(record.ts).encode()),
                (b"Nats-Last-Sequence", b"%d" % before),
            ]
            body = record.body()
            if self._headers_only:
                fields.append((b"Nats-Msg-Size", b"%d" % len(body)))
                body = b""
            header = with_fields(record.header(), fields)
            destination = self._transform.map(record.subject)
            stream.account.send(destination, b"", header, body)
