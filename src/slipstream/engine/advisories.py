"""Advisories and metrics: what happens to streams and consumers, published as core messages.

They are built only when somebody listens (spec advisories-errors.md sections 1 to 3).
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.rfc3339 import time_text

if TYPE_CHECKING:
    from slipstream.engine.jetstream import JetStream

PREFIX = "$JS.EVENT.ADVISORY"
METRIC_PREFIX = "$JS.EVENT.METRIC"


class Advisories:
    """Publishes the advisories of one account."""

    def __init__(self, js: "JetStream") -> None:
        self._js = js

    def publish(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        """Publish ``io.nats.jetstream.<kind>`` on `subject`, if somebody listens."""
        js = self._js
        raw = subject.encode()
        if not js.account.has_interest(raw):
            return
        body: dict[str, Any] = {
            "type": f"io.nats.jetstream.{kind}",
            "id": js.engine.new_id(),
            "timestamp": time_text(js.engine.clock.now),
            **fields,
        }
        if js.domain:
            body["domain"] = js.domain
        js.account.send(raw, b"", b"", msgspec.json.encode(body))

    def stream_action(self, event: str, action: str, stream: str) -> None:
        """A stream was created, updated or deleted."""
        fields = {"stream": stream, "action": action}
        self.publish(f"{PREFIX}.STREAM.{event}.{stream}", "advisory.v1.stream_action", fields)

    def consumer_action(self, event: str, action: str, stream: str, consumer: str) -> None:
        """A consumer was created or deleted."""
        fields = {"stream": stream, "consumer": consumer, "action": action}
        subject = f"{PREFIX}.CONSUMER.{event}.{stream}.{consumer}"
        self.publish(subject, "advisory.v1.consumer_action", fields)

    def consumer_event(
        self, event: str, kind: str, stream: str, consumer: str, **fields: Any
    ) -> None:
        """Something happened to a consumer's message."""
        subject = f"{PREFIX}.CONSUMER.{event}.{stream}.{consumer}"
        self.publish(
            subject, f"advisory.v1.{kind}", {"stream": stream, "consumer": consumer, **fields}
        )

    def metric_ack(self, stream: str, consumer: str, **fields: Any) -> None:
        """A sampled acknowledgement."""
        subject = f"{METRIC_PREFIX}.CONSUMER.ACK.{stream}.{consumer}"
        body = {"stream": stream, "consumer": consumer, **fields}
        self.publish(subject, "metric.v1.consumer_ack", body)

    def api_audit(self, session: Any, subject: str, request: bytes, response: bytes) -> None:
        """An API call was answered."""
        name = f"{PREFIX}.API"
        if not self._js.account.has_interest(name.encode()):
            return
        fields: dict[str, Any] = {
            "server": self._js.engine.server_name,
            "client": client_info(self._js, session),
            "subject": subject,
            "response": response.decode("utf-8", "replace"),
        }
        if request:
            fields["request"] = request.decode("utf-8", "replace")
        self.publish(name, "advisory.v1.api_audit", fields)


def client_info(js: "JetStream", session: Any) -> dict[str, Any]:
    """Who a client is, as advisories show it."""
    if session is None:
        return {"acc": js.account.name, "server": js.engine.server_name}
    return {
        "start": time_text(session.started),
        "host": session.facts.get("ip", ""),
        "id": session.cid,
        "acc": session.account.name,
        "user": session.user.name if session.user else "",
        "name": session.connect.name,
        "lang": session.connect.lang,
        "ver": session.connect.version,
        "rtt": session.rtt,
        "server": js.engine.server_name,
        "kind": "Client",
        "client_type": "nats",
    }
