"""Service imports: a request published in one account is answered in another.

The request is published in the exporting account under its name of the subject. Who answers there
sees a reply subject of its own account (`replies`), and in `Nats-Request-Info` who asks. A request
that nobody takes there is nobody's here, so that the requester hears so at once.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Route, Service
from slipstream.engine.sharing.replies import Requests, replies_of
from slipstream.model.header_fields import NATS_REQUEST_INFO
from slipstream.model.times import time_text
from slipstream.wire.headers import closed, with_fields, without_spelled
from slipstream.wire.subject_pair import SubjectPair

_int = int  # the name `int` in a compiled module's annotations is a C type
_NESTED_MAX = 2  # calls of one import within each other, which only mappings can lead to


class ServiceTerms(msgspec.Struct, frozen=True):
    """How an export answers, and what an import tells of who asks."""

    is_single: bool = True  # one answer; otherwise any number
    response_threshold: int = 0  # ns that may pass between answers
    share: bool = False
    allow_trace: bool = False  # traces go on in the exporting account


class ServiceImport(Service):
    """One service import of `account`; `source` is the exporting account."""

    def __init__(
        self, account: Account, source: Account, theirs: str, ours: str, terms: ServiceTerms
    ) -> None:
        self.account = account
        self.source = source
        self.pair = SubjectPair(theirs, ours)
        self.terms = terms
        self._nested = 0
        self._requests: Requests | None = None
        account.add_service(self.pair.ours, self)

    def stop(self) -> None:
        """Carry nothing any more."""
        self.account.remove_service(self.pair.ours, self)
        if self._requests is not None:
            self._requests.stop()

    def subject_of(self, subject: bytes) -> bytes:
        """What the exporting account calls `subject`; b"" if its mappings lose it."""
        theirs = self.pair.to_theirs(subject)
        mappings = self.source.mappings
        return theirs if mappings is None else mappings.map(theirs)

    def handle(self, message: Inbound) -> _int:
        source = self.source
        subject = self.subject_of(message.to or message.subject)
        route = source.route(subject)
        has_clients = route.plain or route.queues or route.shared is not None
        if (not has_clients and not route.services) or self._nested >= _NESTED_MAX:
            return 0
        reply = self._open().begin(self.account, message.reply) if message.reply else b""
        request = message.under(subject, reply)
        count = 0
        self._nested += 1
        try:
            for service in route.services:
                count += service.handle(request)
            if has_clients:
                self._inform(request, message.session)
                clients = Route(route.plain, route.queues, (), route.shared)
                count += source.dispatch(clients, request)
        finally:
            self._nested -= 1
        if not count and reply:
            replies_of(source).cancel(reply)
        return count

    def _open(self) -> Requests:
        if self._requests is None:
            replies = replies_of(self.source)
            self._requests = Requests(replies, self.terms.is_single, self.terms.response_threshold)
        return self._requests

    def _inform(self, request: Inbound, session: Any) -> None:
        """Say who asks; what a client says of itself is no proof, and goes."""
        block = closed(without_spelled(request.header(), NATS_REQUEST_INFO))
        info = msgspec.json.encode(self._info(session))
        block = with_fields(block, [(NATS_REQUEST_INFO, info)])
        request.data = block + request.body()
        request.header_start = 0
        request.body_start = len(block)
        request.end = len(request.data)

    def _info(self, session: Any) -> dict[str, Any]:
        """Who asks: the account, and with `share` the client."""
        if session is None:
            return {"acc": self.account.name}
        known: dict[str, Any] = {"acc": session.account.name}
        if session.account is not self.account:
            known["svc"] = self.account.name
        rtt = session.rtt or session.facts.get("first_rtt", 0)
        if not self.terms.share:
            return known | ({"rtt": rtt} if rtt else {})
        said = session.connect
        named = {
            "user": session.user.name if session.user else "",
            "name": said.name,
            "lang": said.lang,
            "ver": said.version,
            "rtt": rtt,
        }
        client = {
            "start": time_text(session.started),
            "host": session.facts.get("ip", ""),
            "id": session.cid,
            **known,
            **{name: value for name, value in named.items() if value},
            "server": self.account.engine.server_name,
            "kind": session.facts.get("kind", "Client"),
        }
        kind = {"client_type": session.facts.get("type", "nats")}
        return client | (kind if client["kind"] == "Client" else {})


class ServiceImports:
    """All service imports of `account`, as `account.service_imports`."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.imports: dict[tuple[int, str, str, ServiceTerms], ServiceImport] = {}

    def replace(self, wanted: Iterable[tuple[Account, str, str, ServiceTerms]]) -> None:
        """From now on there are these imports: (exporting account, its subject, the subject here,
        terms). One that was there before goes on, with the requests that are open."""
        keyed = {(id(each[0]), *each[1:]): each for each in wanted}
        for key in [key for key in self.imports if key not in keyed]:
            self.imports.pop(key).stop()
        for key, each in keyed.items():
            if key not in self.imports:
                self.imports[key] = ServiceImport(self._account, *each)


def import_services(
    account: Account, wanted: Sequence[tuple[Account, str, str, ServiceTerms]]
) -> None:
    """Have `account` import these services, and no others; see `ServiceImports.replace`."""
    if account.service_imports is None and wanted:
        account.service_imports = ServiceImports(account)
    if account.service_imports is not None:
        account.service_imports.replace(wanted)
        if not wanted:
            account.service_imports = None
