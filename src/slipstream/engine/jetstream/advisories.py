"""Advisories and metrics: what happens to streams and consumers, published as core messages.

They are built only when somebody listens (docs/protocol/events.md).
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.protocol.group import Group, all_peer_infos, peer_id
from slipstream.engine.session.host import Host
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream
    from slipstream.engine.protocol.infos import PeerInfo
    from slipstream.engine.session.account import Account

PREFIX = "$JS.EVENT.ADVISORY"
METRIC_PREFIX = "$JS.EVENT.METRIC"


class Advisories:
    """Publishes the advisories of one account."""

    def __init__(self, js: "JetStream") -> None:
        self._js = js

    def publish(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        """Publish ``io.nats.jetstream.<kind>`` on `subject`, if somebody listens."""
        _publish(self._js.account, subject, kind, fields)

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

    def fallback(self, stream: str, consumer: str, reason: str) -> None:
        """A stream, or a consumer of it, may have an older configuration than it was given."""
        kind, fields = "STREAM", {"stream": stream, "reason": reason}
        name = stream
        if consumer:
            kind, name = "CONSUMER", f"{stream}.{consumer}"
            fields["consumer"] = consumer
        self.publish(f"{PREFIX}.{kind}.FALLBACK.{name}", "advisory.v1.fallback", fields)

    def damaged(self, stream: str, reason: str) -> None:
        """The scrub has found that a stream's files are not what was written."""
        fields = {"stream": stream, "reason": reason}
        self.publish(f"{PREFIX}.STREAM.DAMAGED.{stream}", "advisory.v1.stream_damaged", fields)

    def batch_abandoned(self, stream: str, batch: str, reason: str) -> None:
        """An atomic batch was dropped; the system account hears of it as well."""
        subject = f"{PREFIX}.STREAM.BATCH_ABANDONED.{stream}"
        kind = "advisory.v1.stream_batch_abandoned"
        fields = {"stream": stream, "batch": batch, "reason": reason}
        self.publish(subject, kind, fields)
        named = {"account": self._js.account.name, **fields}
        _publish(self._js.engine.system_account, subject, kind, named)

    def leader_elected(
        self, stream: str, consumer: str, leader: str, replicas: "list[PeerInfo]"
    ) -> None:
        """A stream, or a consumer of it, has a new leader; the system account hears of it, too."""
        what, name, named = "stream", stream, {"stream": stream}
        if consumer:
            what, name, named = "consumer", f"{stream}.{consumer}", named | {"consumer": consumer}
        subject = f"{PREFIX}.{what.upper()}.LEADER_ELECTED.{name}"
        kind = f"advisory.v1.{what}_leader_elected"
        fields = {**named, "leader": leader, "replicas": replicas}
        self.publish(subject, kind, fields)
        account = {"account": self._js.account.name}
        _publish(self._js.engine.system_account, subject, kind, account | fields)

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
    group = js.engine.group
    where = {"server": js.engine.server_name} | ({"cluster": group.name} if group else {})
    if session is None:
        return {"acc": js.account.name, **where}
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
        **where,
        "kind": "Client",
        "client_type": "nats",
    }


def group_led(engine: Host, group: Group) -> None:
    """Report that this server leads its group."""
    fields = {
        "leader": peer_id(group.server_name),
        "replicas": all_peer_infos(group),
        "cluster": group.name,
    }
    subject = f"{PREFIX}.DOMAIN.LEADER_ELECTED"
    _publish(engine.system_account, subject, "advisory.v1.domain_leader_elected", fields)


def publish_limit_reached(engine: Host, dropped: int) -> None:
    """Report that `dropped` API requests were dropped, because too many were waiting."""
    fields = {"server": engine.server_name, "dropped": dropped}
    subject = f"{PREFIX}.API.LIMIT_REACHED"
    _publish(engine.system_account, subject, "advisory.v1.api_limit_reached", fields)


def _publish(account: "Account", subject: str, kind: str, fields: dict[str, Any]) -> None:
    raw = subject.encode()
    if not account.has_interest(raw):
        return
    engine: Host = account.engine
    body: dict[str, Any] = {
        "type": f"io.nats.jetstream.{kind}",
        "id": engine.new_id(),
        "timestamp": time_text(engine.clock.now),
        **fields,
    }
    if engine.options.domain:
        body["domain"] = engine.options.domain
    account.send(raw, b"", b"", msgspec.json.encode(body))
