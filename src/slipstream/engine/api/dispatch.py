"""From a subject to a handler and back: what all API calls have in common (docs/protocol/api.md).

A handler takes `Request` and returns the fields of its response, or raises `ApiError`. What it
changed on disk, or shows, may take a while to become durable; then it returns `WhenDurable`, and
the answer waits. Everything around it is done here once: the checks in their order, the envelope
with its `type`, what the envelope holds beside an error, counting, the audit advisory, and silence
where nats-server is silent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from slipstream.engine.commit.not_yet import NotYetError
from slipstream.engine.loop.turn import CHANGE, REQUEST
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.sharing.service_imports import ServiceImport
from slipstream.errors import StorageError
from slipstream.log.cold import ColdError
from slipstream.model.error_codes import ErrorCode

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream

PREFIX = "$JS.API."
# By the consumer or the stream itself, if it is there.
ANSWERED_ELSEWHERE = (b"$JS.API.CONSUMER.MSG.NEXT.", b"$JS.API.DIRECT.GET.")
TYPE_PREFIX = "io.nats.jetstream.api.v1."
ANSWER_BYTES_PER_STEP = 8
LOOKS_MAX = 5  # at what the disk has refused each time, or what has ended
_MISSING = (ErrorCode.STREAM_NOT_FOUND, ErrorCode.CONSUMER_NOT_FOUND)
_CHANGES = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "PAUSE", "RESET")


@dataclass(slots=True)
class Request:
    """One API call."""

    tokens: list[str]  # of the subject, after the operation: the stream, the consumer ...
    body: bytes
    message: Inbound
    strict: bool = True  # unknown fields are errors
    answer_header: bytes = b""  # the header block of the answer, unless that is an error

    @property
    def is_empty(self) -> bool:
        """No bytes, or a JSON object without keys."""
        return not self.body or b"".join(self.body.split()) == b"{}"

    @property
    def has_json(self) -> bool:
        """Whether an optional body is there: anything that begins like JSON."""
        return self.body.lstrip()[:1] in (b"{", b"[")


Fields: TypeAlias = Mapping[str, object]
"""What an answer holds; the types in `engine/protocol/infos.py` are of this kind."""
Done = Callable[[Exception | None], None]
Wait = Callable[[Done], None]


def all_of(*waits: Wait) -> Wait:
    """Waits for several things: called back when the last one is there, with the first error."""

    def wait(done: Done) -> None:
        if not waits:
            done(None)
        left = len(waits)
        first: Exception | None = None

        def one(error: Exception | None) -> None:
            nonlocal left, first
            left -= 1
            first = first or error
            if not left:
                done(first)

        for each in waits:
            each(one)

    return wait


class WhenDurable:
    """An answer that waits until a change is on disk.

    `wait` is given a callback, and calls it once, with the error if the change may not survive a
    crash; `failure` makes of it what the client is sent. `fields` may be found out then, and what
    they show may be waited for, too (`Covered`). With `refused` that is the answer: what it tells
    of has to be there, or gone, for good.
    """

    looks_again = False  # on an error: the request is handled anew, and shows what there is then

    def __init__(
        self,
        wait: Wait,
        fields: "Fields | Callable[[], Fields | Covered]",
        failure: ErrorCode = ErrorCode.STREAM_GENERAL_ERROR,
        refused: ApiError | None = None,
    ) -> None:
        self.wait = wait
        self.refused = refused
        self.failure = failure
        self._fields = fields

    @property
    def fields(self) -> "Fields | Covered":
        """The answer, as things are when the change is durable."""
        return self._fields() if callable(self._fields) else self._fields

    def refusal(self, error: Exception) -> ApiError:
        """The change may not survive a crash."""
        return error if isinstance(error, ApiError) else ApiError(self.failure, err=str(error))


class StuckError(StorageError):
    """The disk takes nothing more for now: what is durable is shown without the rest."""


class Covered(WhenDurable):
    """An answer that shows what there is, as it is now, and leaves once that is durable."""

    looks_again = True

    def __init__(self, wait: Wait, fields: Fields) -> None:
        super().__init__(wait, fields)


Handler = Callable[["JetStream", Request], Fields | WhenDurable | None]


@dataclass(slots=True, frozen=True)
class Operation:
    """An entry of the API."""

    name: str  # the subject after $JS.API., without stream and consumer
    tokens: int  # how many follow; -1: at least one
    response: str  # the type, without its prefix
    handler: Handler
    zeros: Fields  # what the envelope holds beside an error
    counted: bool = True  # in the account's API statistics, when it succeeds

    @property
    def changes(self) -> bool:
        """Whether it changes a stream or a consumer."""
        return self.name.endswith(_CHANGES)


class ApiService(Service):
    """Answers `$JS.API.>` of one account."""

    def __init__(self, js: "JetStream", operations: list[Operation]) -> None:
        self.js = js
        self._operations: dict[str, list[Operation]] = {}
        for operation in operations:
            self._operations.setdefault(operation.name, []).append(operation)
        self._longest = max(name.count(".") + 1 for name in self._operations)
        js.account.add_service(b"$JS.API.>", self)
        self._domain_prefix = ""
        if js.domain:
            self._domain_prefix = f"$JS.{js.domain}.API."
            js.account.add_service(self._domain_prefix.encode() + b">", self)

    def stop(self) -> None:
        """Answer no more."""
        self.js.account.remove_service(b"$JS.API.>", self)
        if self._domain_prefix:
            self.js.account.remove_service(self._domain_prefix.encode() + b">", self)

    def handle(self, message: Inbound) -> int:
        if message.subject.startswith(ANSWERED_ELSEWHERE):
            return 0
        subject = message.subject.decode("utf-8", "replace")
        if self._domain_prefix and subject.startswith(self._domain_prefix):
            return self._mapped(subject[len(self._domain_prefix) :], message)
        rest = subject[len(PREFIX) :]
        if not self.js.account.limits.jetstream and self._is_elsewhere(message.subject):
            return 0
        if self._find(rest)[0] is None:
            return 1
        engine = self.js.engine
        began = engine.meter.begin()
        if message.session is not None and engine.must_wait():
            engine.queue_request(self, message, began)
        else:
            self.answer(message, began)
        return 1

    def _is_elsewhere(self, subject: bytes) -> bool:
        """Whether the account, which has no JetStream, uses that of another one by this name, or
        has imported what tells of it: then nobody answers what is not imported."""
        return self._is_imported(subject) or self._is_imported(b"$JS.API.INFO")

    def _is_imported(self, subject: bytes) -> bool:
        services = self.js.account.route(subject).services
        return any(isinstance(service, ServiceImport) for service in services)

    def answer(self, message: Inbound, began: int) -> None:
        """Answer a request to one of the operations, which began to be measured then."""
        subject = message.subject.decode("utf-8", "replace")
        operation, tokens = self._find(subject[len(PREFIX) :])
        if operation is not None:
            request = Request(tokens, message.body(), message, self.js.engine.options.strict)
            self._answer(operation, request, subject, began)

    def _mapped(self, rest: str, message: Inbound) -> int:
        """A call under the domain's prefix is the same call."""
        inner = rest if rest.startswith(("$KV.", "$OBJ.", "$O.")) else PREFIX + rest
        copy = Inbound(
            inner.encode(), message.reply, message.header(), message.body(), message.session
        )
        return self.js.account.publish(copy)

    def _find(self, rest: str) -> tuple[Operation | None, list[str]]:
        tokens = rest.split(".")
        for n in range(min(self._longest, len(tokens)), 0, -1):
            for operation in self._operations.get(".".join(tokens[:n]), ()):
                named = tokens[n:]
                if operation.tokens == len(named) or (operation.tokens < 0 and named):
                    return operation, named
        return None, []

    def _answer(self, operation: Operation, request: Request, subject: str, began: int) -> None:
        js = self.js
        call = _Call(js, operation, request, subject, began)
        if js.refused_level(request.message):
            call.answer({}, ApiError(ErrorCode.REQUIRED_API_LEVEL))
        elif not js.account.limits.jetstream:
            call.answer({}, ApiError(ErrorCode.NOT_ENABLED_FOR_ACCOUNT))
        else:
            call.attempt()


class _Call:
    """A request on its way to its answer. It refers to nothing that refers to it, so that its
    memory is free as soon as it is answered."""

    __slots__ = (
        "_began", "_js", "_looks", "_operation", "_reply", "_request", "_session", "_subject",
    )  # fmt: skip

    def __init__(
        self, js: "JetStream", operation: Operation, request: Request, subject: str, began: int
    ) -> None:
        self._js = js
        self._operation = operation
        self._request = request
        self._subject = subject
        self._began = began
        self._looks = 0  # at what could not become durable
        # The message is only ours during the call, and a handler may publish.
        self._reply, self._session = request.message.reply, request.message.session

    def attempt(self) -> None:
        """Do what is asked; what the disk has to be waited for is asked again."""
        js, operation = self._js, self._operation
        steps = CHANGE if operation.changes else REQUEST
        self._count_steps(steps)
        try:
            found = operation.handler(js, self._request)
        except ColdError as cold:  # nothing has changed
            js.engine.fetch(cold, self._session, self._again)
        except NotYetError as early:  # nothing has changed here, either
            self._count_steps(REQUEST - steps)
            js.engine.wait(early, self._session, self._again)
        except ApiError as refused:
            if refused.err_code in _MISSING and not js.is_kept:  # a crash may bring it back
                wait = js.unless_stuck(js.when_kept)
                self._answer_when_durable(WhenDurable(wait, {}, refused=refused))
            else:
                self.answer({}, refused)
        except (StorageError, OSError) as failed:
            self.answer({}, ApiError(ErrorCode.STREAM_GENERAL_ERROR, err=str(failed)))
        else:
            if isinstance(found, WhenDurable):
                self._answer_when_durable(found)
            elif found is not None:
                self.answer(found)

    def pump(self) -> None:
        """Look again, later in the turn, when all is done that was refused or has ended."""
        self._again()

    def put_off(self, error: Exception) -> None:
        """The disk has failed meanwhile."""
        self.answer({}, ApiError(ErrorCode.STREAM_GENERAL_ERROR, err=str(error)))

    def _again(self) -> None:
        account = self._js.account
        if account.jetstream is self._js:
            self.attempt()
        elif not account.limits.jetstream:  # any more; else the server stops
            self.answer({}, ApiError(ErrorCode.NOT_ENABLED_FOR_ACCOUNT))

    def _answer_when_durable(self, held: WhenDurable) -> None:
        def settled(error: Exception | None) -> None:
            if error is None:
                self._show(held)
            elif held.looks_again and self._looks < LOOKS_MAX:
                self._looks += 1
                self._js.engine.turn.ready.append(self)
            elif isinstance(error, StuckError):
                self._show(held)
            else:
                self.answer({}, held.refusal(error))

        self._wait(held.wait, settled)

    def _show(self, held: WhenDurable) -> None:
        """What `held` waited for is durable."""
        if held.refused is not None:
            self.answer({}, held.refused)
            return
        shown = held.fields
        if isinstance(shown, Covered):  # others have followed since
            self._answer_when_durable(WhenDurable(shown.wait, lambda: shown.fields, held.failure))
        else:
            self.answer(shown)

    def _wait(self, wait: Wait, settled: Done) -> None:
        """Wait; too many who only look, and so leave nothing to wait for on a disk that stands
        still, are not read from meanwhile."""
        if self._operation.changes:
            wait(settled)
            return
        outcome: list[Exception | None] = []

        def begin(counted: Callable[[], None]) -> None:
            def noted(error: Exception | None) -> None:
                outcome.append(error)
                counted()

            wait(noted)

        early = NotYetError("an answer", begin)
        self._js.engine.wait(early, self._session, lambda: settled(outcome[0]))

    def answer(self, fields: Fields, error: ApiError | None = None) -> None:
        """Send the answer, or an error."""
        js, operation = self._js, self._operation
        envelope: dict[str, object] = {"type": TYPE_PREFIX + operation.response}
        if error is None:
            envelope.update(fields)
        else:
            js.api_errors += 1
            js.api_total += not operation.counted
            envelope["error"] = error.body
            envelope.update(operation.zeros)
        js.api_total += operation.counted
        response = msgspec.json.encode(envelope)
        self._count_steps(len(response) // ANSWER_BYTES_PER_STEP)
        if self._reply:
            block = self._request.answer_header if error is None else b""
            js.account.send(self._reply, b"", block, response)
        js.engine.meter.answered(self._began)
        js.advisories.api_audit(self._session, self._subject, self._request.body, response)

    def _count_steps(self, steps: int) -> None:
        """Count the work that was done for a request."""
        turn = self._js.engine.turn
        turn.spent += steps
        turn.api_spent += steps


def page(items: list[Any], offset: int, size: int) -> tuple[dict[str, int], list[Any]]:
    """The paging fields and the items of a page."""
    start = min(max(offset, 0), len(items))
    return {"total": len(items), "offset": start, "limit": size}, items[start : start + size]
