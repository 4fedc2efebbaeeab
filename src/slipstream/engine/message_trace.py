"""Message tracing: where a message goes, or would go, as one event for its publisher (ADR-41).

A message with ``Nats-Trace-Dest`` makes the server publish an event to that subject: that it
came in, how its subject was mapped, and each subscription, stream and service that it reached. With
``Nats-Trace-Only`` nothing is delivered or stored. A stream stores such a message with the
destination ``trace disabled``, so that it is traced once.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.permissions import quoted
from slipstream.engine.session.routing import Imported, Route, Subscription
from slipstream.engine.sharing.service_imports import ServiceImport
from slipstream.engine.sharing.stream_imports import ImportedService
from slipstream.engine.stream.ingest_checks import check_headers
from slipstream.engine.stream.retention import check_room_for
from slipstream.engine.stream.stream import Stream
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_TRACE_DEST, NATS_TRACE_ONLY
from slipstream.model.times import time_text
from slipstream.wire.headers import fields, find, with_field
from slipstream.wire.subjects import is_literal

if TYPE_CHECKING:
    from slipstream.engine.session.session import ClientSession

_DISABLED = b"trace disabled"
_YES = frozenset({b"1", b"true", b"on"})
_NOT_TRACED = -1
_CLIENT = 0  # `kind`
_LEAF = 4
_SYSTEM_SERVICES = (b"$JS.API.", b"$SYS.REQ.")
# Why a subscription does not get the message.
_CLOSED = "Not delivered because client closed"
_NO_ECHO = "Not delivered because of no echo"
_DENIED = "Not delivered because subscription denies this subject"


def trace(session: "ClientSession", published: bytes, message: Inbound, route: Route) -> int:
    """Dispatch a message of `session` that has the header; to how many it went, or would go.

    `published` is its subject before mapping. -1: there is no destination, so that the message is
    like any other.
    """
    destination = _value(message, NATS_TRACE_DEST)
    if not destination or destination == _DISABLED:
        return _NOT_TRACED
    if session.permissions is not None and not session.permissions.may_publish(destination):
        session.put_error(b"Permissions Violation for Publish to " + quoted(destination))
        return 1
    tracing = _Trace(session, message)
    tracing.came_in(published)
    count = tracing.dispatch(route)
    if is_literal(destination):
        session.account.send(destination, b"", b"", msgspec.json.encode(tracing.event()))
    return count


class _Trace:
    """One message on its way, and what is noted of it."""

    def __init__(self, session: "ClientSession", message: Inbound) -> None:
        self._session = session
        self._message = message
        self._engine = session.engine
        self._account = session.account
        self._only = _value(message, NATS_TRACE_ONLY).lower() in _YES
        self._header = message.header()
        self._size = message.end - message.header_start
        self._events: list[dict[str, Any]] = []

    def event(self) -> dict[str, Any]:
        """What the destination is sent."""
        request = {"header": _fields(self._header), "msgsize": self._size}
        return {
            "server": self._engine.describe(),
            "request": request,
            "events": self._events,
        }

    def _note(self, what: str, **facts: Any) -> None:
        when = time_text(self._engine.clock.now)
        self._events.append({"type": what, "ts": when} | facts)

    def came_in(self, published: bytes) -> None:
        """From whom, and under which subject."""
        account = self._account.name
        self._note("in", **_client(self._session), acc=account, subj=_text(published))
        if self._message.subject != published:
            self._note("sm", to=_text(self._message.subject))

    def dispatch(self, route: Route) -> int:
        """What `Account.dispatch` does, with notes."""
        count = sum(self._deliver([subscription]) for subscription in route.plain)
        for group in route.queues:
            start = int(self._account.random.random() * len(group))
            count += self._deliver([*group[start:], *group[:start]])
        if route.shared is not None and not self._only:
            count += self._account.share_out(route.shared, self._message, None)
        has_system_service = False
        for service in route.services:
            if isinstance(service, Stream):
                count += self._store(service, self._message)
                continue
            if isinstance(service, ServiceImport):
                count += self._request(service)
                continue
            if isinstance(service, ImportedService):
                count += self._store_there(service)
                continue
            if self._message.subject.startswith(_SYSTEM_SERVICES) and not has_system_service:
                has_system_service = True
                self._note_service()
            if not self._only:
                count += service.handle(self._message)
        return count

    def _request(self, service: ServiceImport) -> int:
        """To another account, whose export says whether the trace goes on there."""
        subject = self._message.subject
        theirs = service.subject_of(subject)
        facts = {"from": _text(subject), "to": _text(theirs)}
        self._note("si", acc=service.source.name, **facts)
        if service.terms.allow_trace:
            route = service.source.route(theirs)
            for subscription in [*route.plain, *(group[0] for group in route.queues)]:
                self._note_delivery(subscription, _obstacle(self._session, subscription, theirs))
        elif self._only:
            return int(service.source.has_interest(theirs))
        return 1 if self._only else service.handle(self._message)

    def _store_there(self, service: ImportedService) -> int:
        """To a stream of another account, which imports the subject."""
        message = service.renamed(self._message)
        self._note("se", acc=service.via.account.name, to=_text(message.subject))
        stream = service.original
        if service.via.allow_trace and isinstance(stream, Stream):
            return self._store(stream, message)
        return 1 if self._only else stream.handle(message)

    def _deliver(self, group: list[Subscription]) -> int:
        """To the first of `group` that can take it."""
        for subscription in group:
            error = _obstacle(self._session, subscription, self._message.subject)
            if not error:
                break
        found = error == "" and (
            self._only
            or subscription.receiver.deliver(subscription, self._message.subject, self._message)
        )
        self._note_delivery(subscription, "" if found else error or _CLOSED)
        return int(found)

    def _note_delivery(self, subscription: Subscription, error: str) -> None:
        listener = subscription
        if isinstance(subscription, Imported):
            via = subscription.via
            local = via.pair.to_ours(self._message.subject)
            self._note("se", acc=via.account.name, to=_text(local))
            if not via.allow_trace:
                return
            listener = subscription.original
        facts = {"sub": _text(subscription.subject)}
        if subscription.queue:
            facts["queue"] = _text(subscription.queue)
        if error:
            facts["error"] = error
        receiver: Any = listener.receiver
        account = receiver.account
        where = {"acc": account.name} if account is not self._account else {}
        self._note("eg", **_client(receiver), **where, **facts)

    def _note_service(self) -> None:
        subject = _text(self._message.subject)
        to = subject
        if subject == "$SYS.REQ.USER.INFO":
            to = f"$SYS.REQ.USER.{self._account.name}.INFO"
        self._note("si", acc=self._engine.system_account.name, **{"from": subject}, to=to)

    # -- streams -------------------------------------------------------------------------------

    def _store(self, stream: Stream, message: Inbound) -> int:
        subject = message.subject
        if stream.transform is not None:
            subject = stream.transform.map(subject)
        error = self._refusal(stream, subject, message)
        if error:
            stream.handle(message)  # stores nothing, and answers with the error
        elif not self._only:
            last = stream.log.last_seq
            stream.handle(self._disabled(message))
            if stream.log.last_seq == last:
                error = "the stream could not store it"
        facts = {"error": error} if error else {"subject": _text(subject)}
        self._note("js", stream=stream.name, **facts)
        return 1

    def _refusal(self, stream: Stream, subject: bytes, message: Inbound) -> str:
        """Why a stream would not store the message; "" if it would. Room is looked for only if the
        message is to be stored."""
        config = stream.config
        try:
            if config.sealed:
                raise ApiError(ErrorCode.STREAM_SEALED)
            if 0 <= config.max_msg_size < self._size:
                raise ApiError(ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
            verdict = check_headers(stream, subject, message)
            if verdict.duplicate_of:
                return "msgid is duplicate"
            if not self._only:
                check_room_for(stream, subject, message, verdict.rollup != "")
        except ApiError as error:
            return str(error)
        return ""

    def _disabled(self, message: Inbound) -> Inbound:
        """The message as a stream stores it."""
        header = with_field(self._header, NATS_TRACE_DEST, _DISABLED)
        return Inbound(message.subject, message.reply, header, message.body(), message.session)


def _obstacle(session: Any, subscription: Subscription, subject: bytes) -> str:
    """Why a subscription does not get a message of `session` on `subject`; "" if it does."""
    if isinstance(subscription, Imported):
        subject = subscription.via.pair.to_ours(subject)
        subscription = subscription.original
    receiver: Any = subscription.receiver
    if subscription.closed or receiver.closed:
        return _CLOSED
    if receiver is session and not receiver.echo:
        return _NO_ECHO
    permissions = receiver.permissions
    if permissions is not None and permissions.must_filter(subscription.subject):
        return "" if permissions.may_receive(subject) else _DENIED
    return ""


def _client(session: Any) -> dict[str, Any]:
    is_link = session.facts.get("kind") == "Leafnode"
    facts: dict[str, Any] = {"kind": _LEAF if is_link else _CLIENT, "cid": session.cid}
    if session.connect.name:
        facts["name"] = session.connect.name
    return facts


def _fields(header: bytes) -> dict[str, list[str]]:
    """The fields of a header block, by name."""
    found: dict[str, list[str]] = {}
    for name, value in fields(header):
        found.setdefault(_text(name), []).append(_text(value))
    return dict(sorted(found.items()))


def _value(message: Inbound, name: bytes) -> bytes:
    return find(message.data, message.header_start, message.body_start, name) or b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
