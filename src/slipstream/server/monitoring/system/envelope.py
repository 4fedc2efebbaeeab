"""What messages on the system account begin with: which server sends them."""

from typing import Any

from slipstream.engine.protocol.group import Member, ServerFacts
from slipstream.engine.protocol.options import VERSION
from slipstream.model.times import time_text
from slipstream.server.monitoring.monitor import FEATURE_FLAGS, Monitor
from slipstream.server.monitoring.values import to_json
from slipstream.wire.headers import fields

Answer = dict[str, Any]  # of an answer or an event
_HAS_JETSTREAM = 1  # of `flags`
_GZIP_HEADER = b"NATS/1.0\r\nContent-Encoding: gzip\r\n\r\n"


class Envelopes:
    """Numbers and sends messages of the server on its system account and elsewhere."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._sequence = 0

    def server(self) -> Answer:
        """`server` of a message; each has the next number."""
        engine, options = self.monitor.engine, self.monitor.options
        self._sequence += 1
        info: Answer = {
            "name": engine.server_name,
            "host": options.host,
            "id": engine.server_id,
        }
        if engine.group is not None:
            info["cluster"] = engine.group.name
        if engine.options.domain:
            info["domain"] = engine.options.domain
        info["ver"] = VERSION
        if options.server_tags:
            info["tags"] = [tag.lower() for tag in options.server_tags]
        if options.server_metadata:
            info["metadata"] = options.server_metadata
        info |= {
            "feature_flags": FEATURE_FLAGS,
            "jetstream": options.jetstream.enabled,
            "flags": _HAS_JETSTREAM if options.jetstream.enabled else 0,
            "seq": self._sequence,
            "time": time_text(self.monitor.now),
        }
        return info

    def server_that_follows(self, member: Member, facts: ServerFacts) -> Answer:
        """`server` of a message that this server sends for one that follows it in the group."""
        info = self.server()
        info |= {"name": member.name, "host": facts.host, "id": facts.server_id}
        for name, value in (("tags", list(facts.tags)), ("metadata", facts.metadata)):
            info.pop(name, None)
            if value:
                info[name] = value
        return info

    def event(self, kind: str) -> Answer:
        """How an event of the type ``io.nats.server.advisory.v1.<kind>`` begins."""
        return {
            "type": f"io.nats.server.advisory.v1.{kind}",
            "id": self.monitor.engine.new_id(),
            "timestamp": time_text(self.monitor.now),
            "server": self.server(),
        }


def packed(answer: Any, request_header: bytes) -> tuple[bytes, bytes]:
    """Header and body of an answer, compressed if the request says that it may be."""
    body = to_json(answer, indent=0)
    for name, value in fields(request_header):
        if name.strip().lower() == b"accept-encoding" and b"gzip" in value.lower():
            import gzip

            return _GZIP_HEADER, gzip.compress(body, compresslevel=5)
    return b"", body
