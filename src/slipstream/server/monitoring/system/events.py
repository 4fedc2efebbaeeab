"""What the server tells the system account by itself: clients that come, go, or are refused.

An event is built only if somebody listens (docs/protocol/accounts.md#events-of-the-system-account).
"""

from collections.abc import Callable
from typing import Any

from slipstream.engine.session.account import Account
from slipstream.engine.session.facts import SessionFacts, session_facts
from slipstream.engine.session.session import ClientSession
from slipstream.model.times import time_text
from slipstream.server.monitoring.system.envelope import Envelopes
from slipstream.server.monitoring.values import to_json

_REFUSED = "Authentication Failure"


class SystemEvents:
    """The engine's `Observer` that publishes; `attach` makes requests work in a new account."""

    def __init__(self, envelopes: Envelopes, attach: Callable[[Account], None]) -> None:
        self._envelopes = envelopes
        self._attach = attach
        self._engine = envelopes.monitor.engine
        self._account = self._engine.system_account

    def account_added(self, account: Account) -> None:
        """Its clients may ask about it."""
        self._attach(account)

    def admitted(self, session: ClientSession) -> None:
        """A client has said who it is."""
        name = session.account.name
        self._count_changed(name)
        subject = f"$SYS.ACCOUNT.{name}.CONNECT"
        if self._is_wanted(subject):
            event = self._envelopes.event("client_connect")
            event["client"] = _client(session_facts(session))
            self._publish(subject, event)

    def ended(self, facts: SessionFacts) -> None:
        """A connection is over."""
        if facts.reason == _REFUSED:
            self._disconnected(f"$SYS.SERVER.{self._engine.server_id}.CLIENT.AUTH.ERR", facts)
        if facts.is_admitted:
            self._count_changed(facts.account)
        self._disconnected(f"$SYS.ACCOUNT.{facts.account}.DISCONNECT", facts)

    def _disconnected(self, subject: str, facts: SessionFacts) -> None:
        if not self._is_wanted(subject):
            return
        event = self._envelopes.event("client_disconnect")
        event |= {
            "client": _client(facts),
            # As the client sees it.
            "sent": {"msgs": facts.in_msgs, "bytes": facts.in_bytes},
            "received": {"msgs": facts.out_msgs, "bytes": facts.out_bytes},
            "reason": facts.reason,
        }
        self._publish(subject, event)

    def _count_changed(self, name: str) -> None:
        for subject in (f"$SYS.SERVER.ACCOUNT.{name}.CONNS", f"$SYS.ACCOUNT.{name}.SERVER.CONNS"):
            if self._is_wanted(subject):
                self._publish(subject, connections_event(self._envelopes, name))

    def _is_wanted(self, subject: str) -> bool:
        return self._account.has_interest(subject.encode())

    def _publish(self, subject: str, event: dict[str, Any]) -> None:
        self._account.send(subject.encode(), b"", b"", to_json(event, indent=0))


def connections_event(envelopes: Envelopes, name: str) -> dict[str, Any]:
    """How many connections an account has, and what they did."""
    from slipstream.server.monitoring.endpoints.accounts import account_stat

    engine = envelopes.monitor.engine
    stat = account_stat(envelopes.monitor, engine.accounts[name])
    return envelopes.event("account_connections") | stat


def _client(facts: SessionFacts) -> dict[str, Any]:
    client: dict[str, Any] = {
        "start": time_text(facts.started),
        "host": facts.facts.get("ip", ""),
        "id": facts.cid,
        "acc": facts.account,
    }
    optional = {
        "user": facts.user,
        "name": facts.name,
        "lang": facts.lang,
        "ver": facts.version,
        "rtt": facts.rtt,
        "stop": time_text(facts.stopped) if facts.stopped else "",
    }
    client |= {name: value for name, value in optional.items() if value}
    client |= {"name_tag": facts.account, "kind": "Client"}
    return client | {"client_type": facts.facts.get("type", "nats")}
