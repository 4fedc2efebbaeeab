"""`$SYS.REQ...`: the endpoints as requests to the system account
(docs/protocol/monitoring.md#requests-to-the-system-account).

`SystemServices` receives the requests, and loads this module when the first one comes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from slipstream.engine.protocol.json_body import read_lenient
from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.permissions import Permissions, SubscribePattern
from slipstream.engine.session.session import ClientSession
from slipstream.server.monitoring.endpoints.absent import (
    expvarz,
    gatewayz,
    ipqueuesz,
    profilez,
)
from slipstream.server.monitoring.endpoints.accounts import (
    AccountzOptions,
    AccstatzOptions,
    account_detail,
    accountz,
    accstatz,
)
from slipstream.server.monitoring.endpoints.connz import ConnzOptions, connz
from slipstream.server.monitoring.endpoints.healthz import HealthzOptions, healthz
from slipstream.server.monitoring.endpoints.jsz import JszOptions, jsz
from slipstream.server.monitoring.endpoints.jsz import account_detail as jsz_account
from slipstream.server.monitoring.endpoints.leafz import LeafzOptions, leafz
from slipstream.server.monitoring.endpoints.routez import routez
from slipstream.server.monitoring.endpoints.subsz import SubszOptions, subsz
from slipstream.server.monitoring.endpoints.varz import varz
from slipstream.server.monitoring.monitor import Monitor
from slipstream.server.monitoring.system.envelope import Answer, Envelopes
from slipstream.server.monitoring.system.events import connections_event
from slipstream.server.monitoring.system.followers import FollowerAnswers, known_followers
from slipstream.server.monitoring.system.statsz import statsz
from slipstream.server.monitoring.values import BadRequest
from slipstream.wire.subjects import is_literal, is_subset


class Filter(msgspec.Struct, kw_only=True):
    """Which servers a request is for; any may be in the body."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = msgspec.field(default_factory=list)
    domain: str = ""

    def matches(self, monitor: Monitor) -> bool:
        """Whether this server is meant."""
        engine, options = monitor.engine, monitor.options
        return self.matches_server(monitor, engine.server_name, options.host, options.server_tags)

    def matches_server(
        self, monitor: Monitor, name: str, host: str, server_tags: Iterable[str]
    ) -> bool:
        """Whether a server of this group is meant, or this one, which may be by itself."""
        engine = monitor.engine
        own_tags = {tag.lower() for tag in server_tags}
        return (
            self._is_like(self.server_name, name)
            and self._is_like(self.host, host)
            and self._is_like(self.cluster, engine.group.name if engine.group else "")
            and (not self.domain or self.domain == engine.options.domain)
            and {tag.lower() for tag in self.tags} <= own_tags
        )

    def _is_like(self, wanted: str, own: str) -> bool:
        return wanted == own if self.exact_match and wanted else wanted in own


class _Client(msgspec.Struct):
    cid: int = 0


class _Interest(msgspec.Struct):
    acc: str = ""
    subject: str = ""
    queue: str = ""


class _Profile(msgspec.Struct):
    name: str = ""
    debug: int = 0


class _Refused(Exception):
    """An error for the envelope."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


Handler = Callable[[bytes], Answer]


class SystemRequests:
    """Answers what clients ask of the system account, and of their own about itself."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._monitor = envelopes.monitor
        monitor = self._monitor
        self._server: dict[str, Handler] = {
            "STATSZ": lambda body: {"statsz": statsz(monitor)},
            "VARZ": lambda body: _data(varz(monitor)),
            "CONNZ": lambda body: _data(connz(monitor, _read(body, ConnzOptions))),
            "SUBSZ": lambda body: _data(subsz(monitor, _read(body, SubszOptions))),
            "JSZ": lambda body: _data(jsz(monitor, _read(body, JszOptions))),
            "HEALTHZ": self._health,
            "ACCOUNTZ": lambda body: _data(accountz(monitor, _read(body, AccountzOptions))),
            "ACCSTATZ": lambda body: _data(accstatz(monitor, _read(body, AccstatzOptions))),
            "ROUTEZ": lambda body: _data(routez(monitor)),
            "LEAFZ": lambda body: _data(leafz(monitor, _read(body, LeafzOptions))),
            "GATEWAYZ": lambda body: _data(gatewayz(monitor)),
            "IPQUEUESZ": lambda body: _data(ipqueuesz(monitor)),
            "EXPVARZ": lambda body: _data(expvarz(monitor)),
            "RAFTZ": lambda body: _data({}),
            "PROFILEZ": self._profile,
        }
        self._orders: dict[str, Handler] = {
            "KICK": self._kick,
            "LDM": self._lame_duck,
        }

    # -- finding the handler -------------------------------------------------------------------

    def handle(self, tokens: list[str], message: Inbound, own: Account | None) -> Any:
        """The answer to the request after `$SYS.REQ.`; None: there is no such request, and
        "": this server is not meant, or there is nothing to say. `own` bounds what is told."""
        body = message.body()
        if tokens == ["USER", "INFO"]:
            return self._enveloped(lambda _: _data(user_info(message.session)), b"")
        if tokens == ["SERVER", "PING", "IDZ"]:
            engine = self._monitor.engine
            host = self._monitor.options.host
            return {"name": engine.server_name, "host": host, "id": engine.server_id}
        if tokens == ["ACCOUNT", "NSUBS"]:
            return self._interest(body)
        handler = self._find(tokens, own)
        if handler is None:
            return None
        return self._enveloped(handler, body)

    def for_followers(self, tokens: list[str], body: bytes) -> Iterator[Answer]:
        """The answers to the request after `$SYS.REQ.` for the servers that follow this one."""
        if tokens == ["SERVER", "PING"]:
            tokens = [*tokens, "STATSZ"]
        if len(tokens) != 3 or tokens[0] != "SERVER":
            return
        _, name, what = tokens
        for member, facts in known_followers(self._monitor.engine.group):
            if name not in ("PING", facts.server_id):
                continue
            answers = FollowerAnswers(self._envelopes, member, facts)
            if what == "IDZ":
                yield answers.identity()
            elif (handler := answers.find(what)) is not None:
                try:
                    wanted = _read(body, Filter)
                    asked = _read(body, JszOptions) if what == "JSZ" else JszOptions()
                except (BadRequest, _Refused):  # the leader says so
                    return
                is_meant = wanted.matches_server(self._monitor, member.name, facts.host, facts.tags)
                if is_meant and not asked.leader_only:
                    yield answers.enveloped(handler())

    def _find(self, tokens: list[str], own: Account | None) -> Handler | None:
        if own is not None:
            return self._of_account(own.name, tokens[-1])
        engine = self._monitor.engine
        if tokens == ["SERVER", "PING"]:
            return self._server["STATSZ"]
        if len(tokens) != 3:
            return None
        kind, name, what = tokens
        if kind == "SERVER" and name in ("PING", engine.server_id):
            orders = self._orders if name != "PING" else {}
            return self._server.get(what) or orders.get(what)
        if kind == "ACCOUNT" and name == "PING":
            return self._server.get("ACCSTATZ" if what == "STATZ" else what)
        return self._of_account(name, what) if kind == "ACCOUNT" else None

    def _of_account(self, name: str, what: str) -> Handler | None:
        monitor = self._monitor
        stats = AccstatzOptions(accounts=[name])
        handlers: dict[str, Handler] = {
            "CONNZ": lambda body: _data(connz(monitor, _read(body, ConnzOptions, acc=name))),
            "SUBSZ": lambda body: _data(
                subsz(monitor, _read(body, SubszOptions, account=name, subscriptions=True))
            ),
            "JSZ": lambda body: self._jetstream_of(name, body),
            "INFO": lambda body: _data(account_detail(monitor, name)),
            "STATZ": lambda body: _data(accstatz(monitor, stats)),
            "LEAFZ": lambda body: _data(leafz(monitor, _read(body, LeafzOptions, account=name))),
            "CONNS": lambda body: self._connections(name),
        }
        return handlers.get(what)

    def _enveloped(self, handler: Handler, body: bytes) -> Any:
        try:
            if body.strip() and not _read(body, Filter).matches(self._monitor):
                return ""
            found = handler(body)
        except (BadRequest, _Refused) as error:
            code = error.code if isinstance(error, _Refused) else 500
            found = {"error": {"code": code, "description": str(error)}}
        return found if "server" in found else {"server": self._envelopes.server(), **found}

    # -- handlers ------------------------------------------------------------------------------

    def _health(self, body: bytes) -> Answer:
        status, answer = healthz(self._monitor, _read(body, HealthzOptions))
        return _data({"status": answer.pop("status"), "status_code": status, **answer})

    def _jetstream_of(self, name: str, body: bytes) -> Answer:
        account = self._monitor.engine.accounts.get(name)
        if account is None or account.jetstream is None:
            raise _Refused(500, f'account "{name}" not found')
        return _data(jsz_account(self._monitor, account.jetstream, _read(body, JszOptions)))

    def _connections(self, name: str) -> Answer:
        if name not in self._monitor.engine.accounts:
            raise _Refused(500, f"Account {name} does not exist")
        return connections_event(self._envelopes, name)

    def subscribers(self, text: str) -> int:
        """How many subscriptions of the system account are there for "subject" or "subject queue";
        of a subject with wildcards, those that it covers."""
        subject, queue, *_ = *text.strip().encode().split(b" "), b""
        is_exact = is_literal(subject)
        return sum(
            (is_subset(subject, s.subject) if is_exact else is_subset(s.subject, subject))
            and (not queue or s.queue == queue)
            for session in self._monitor.engine.system_account.sessions.values()
            for s in session.subscriptions.values()
        )

    def _interest(self, body: bytes) -> Any:
        """How many subscriptions an account has with exactly this subject and queue."""
        try:
            asked = _read(body, _Interest)
        except _Refused:
            return ""
        account = self._monitor.engine.accounts.get(asked.acc)
        wanted = (asked.subject.encode(), asked.queue.encode())
        return sum(
            s.subject == wanted[0] and (not wanted[1] or s.queue == wanted[1])
            for session in (account.sessions.values() if account is not None else ())
            for s in session.subscriptions.values()
        )

    def _profile(self, body: bytes) -> Answer:
        asked = _read(body, _Profile)
        return _data(profilez(asked.name, asked.debug))

    def _open(self, cid: int) -> Any:
        engine = self._monitor.engine
        return engine.sessions.get(cid) or engine.leaves.sessions.get(cid)

    def _session(self, body: bytes) -> Any:
        session = self._open(_read(body, _Client).cid)
        if session is None:
            raise _Refused(500, "no such client or leafnode id")
        return session

    def _kick(self, body: bytes) -> Answer:
        self._session(body).close("Kicked")
        return {}

    def _lame_duck(self, body: bytes) -> Answer:
        self._monitor.engine.send_lame_duck(self._session(body))
        return {}

    def reload(self, answer: Callable[[Any], None]) -> None:
        """Have the configuration read again; `answer` is called afterwards, with what to say."""

        def done(error: str) -> None:
            outcome = {"error": {"code": 500, "description": error}} if error else {}
            answer({"server": self._envelopes.server(), **outcome})

        if self._monitor.reload is None:
            done("this server has no configuration file to reload")
        else:
            self._monitor.reload(done)


def _data(data: Any) -> Answer:
    return {"data": data}


def _read(body: bytes, kind: type[Any], **fixed: Any) -> Any:
    """Options from a request's body, which may be empty; `fixed` ones are not the asker's."""
    if not body.strip():
        return kind(**fixed)
    try:
        found = read_lenient(body, kind)
    except msgspec.MsgspecError as error:
        raise _Refused(400, str(error)) from error
    return msgspec.structs.replace(found, **fixed) if fixed else found


def user_info(session: ClientSession) -> dict[str, Any]:
    """Who the client that asks is, and what it may do
    (docs/protocol/accounts.md#events-of-the-system-account)."""
    name = session.user.name if session.user is not None else ""
    info: dict[str, Any] = {
        "user": name,
        "account": session.account.name,
        "account_name": session.account.name,
    }
    permissions = session.permissions
    if permissions is not None:
        info["permissions"] = _permissions(permissions)
    return info


def _permissions(permissions: Permissions) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "publish": _allow_and_deny(
            [_text(subject) for subject in permissions.publish_allow],
            [_text(subject) for subject in permissions.publish_deny],
        ),
        "subscribe": _allow_and_deny(
            [_pattern(pattern) for pattern in permissions.subscribe_allow],
            [_pattern(pattern) for pattern in permissions.subscribe_deny],
        ),
    }
    if permissions.allow_responses is not None:
        replies_max, expires = permissions.allow_responses
        shown["responses"] = {"max": replies_max, "ttl": expires}
    return {name: value for name, value in shown.items() if value}


def _allow_and_deny(allow: list[str], deny: list[str]) -> dict[str, list[str]]:
    return ({"allow": allow} if allow else {}) | ({"deny": deny} if deny else {})


def _text(subject: bytes) -> str:
    return subject.decode(errors="replace")


def _pattern(pattern: SubscribePattern) -> str:
    queue = f" {_text(pattern.queue)}" if pattern.queue else ""
    return _text(pattern.subject) + queue
