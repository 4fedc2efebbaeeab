"""Who listens for `$SYS.REQ...`: in the system account for everything, in every other account for
the few requests that are about that account."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.server.monitoring.system.envelope import Envelopes, packed

if TYPE_CHECKING:
    from slipstream.server.monitoring.system.requests import SystemRequests

PREFIX = "$SYS.REQ."
SUBSCRIBERS = b"$SYS.DEBUG.SUBSCRIBERS"
OF_EVERY_ACCOUNT = ("USER.INFO", "SERVER.PING.CONNZ", "ACCOUNT.PING.CONNZ", "ACCOUNT.PING.STATZ")


class SystemServices:
    """Listens in all accounts that are there; `attach` adds one that comes later."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        engine = envelopes.monitor.engine
        _SystemService(engine.system_account, self)
        for account in engine.accounts.values():
            if account is not engine.system_account:
                self.attach(account)

    def attach(self, account: Account) -> None:
        """Answer what an account's clients ask about it."""
        _AccountService(account, self)

    @cached_property
    def requests(self) -> "SystemRequests":
        """Who answers; loaded with the first request, because it needs every endpoint."""
        from slipstream.server.monitoring.system.requests import SystemRequests

        return SystemRequests(self._envelopes)


class _SystemService(Service):
    """`$SYS.REQ.>` of the system account."""

    def __init__(self, account: Account, services: SystemServices) -> None:
        self._account = account
        self._services = services
        self._reload = f"{PREFIX}SERVER.{account.engine.server_id}.RELOAD".encode()
        account.add_service(f"{PREFIX}>".encode(), self)
        account.add_service(SUBSCRIBERS, self)

    def handle(self, message: Inbound) -> int:
        if message.subject == SUBSCRIBERS:
            text = message.body().decode(errors="replace")
            _send(self._account, message.reply, self._services.requests.subscribers(text), b"")
            return 1
        if message.subject == self._reload:
            reply, header = message.reply, message.header()
            self._services.requests.reload(
                lambda answer: _send(self._account, reply, answer, header)
            )
            return 1
        return _respond(self._services.requests, self._account, message, None)


class _AccountService(Service):
    """What every other account may ask about itself."""

    def __init__(self, account: Account, services: SystemServices) -> None:
        self._account = account
        self._services = services
        for name in OF_EVERY_ACCOUNT:
            account.add_service(f"{PREFIX}{name}".encode(), self)

    def handle(self, message: Inbound) -> int:
        return _respond(self._services.requests, self._account, message, self._account)


def _respond(
    requests: "SystemRequests", account: Account, message: Inbound, own: Account | None
) -> int:
    """1 if the request is known, whether or not there is something to say to it."""
    tokens = message.subject.decode("utf-8", "replace")[len(PREFIX) :].split(".")
    reply, header = message.reply, message.header()
    answer = requests.handle(tokens, message, own)
    others = list(requests.for_followers(tokens, message.body())) if own is None else []
    if answer is None and not others:
        return 0
    for one in (answer, *others):
        if one not in (None, ""):
            _send(account, reply, one, header)
    return 1


def _send(account: Account, reply: bytes, answer: Any, request_header: bytes) -> None:
    if reply:
        account.send(reply, b"", *packed(answer, request_header))
