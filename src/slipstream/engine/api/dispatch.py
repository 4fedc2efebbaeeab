"""From a subject to a handler and back: what all API calls have in common (jetstream-api.md 1).

A handler takes `Request` and returns the fields of its response, or raises `ApiError`. Everything
around it is done here once: the checks in their order, the envelope with its `type`, what the
envelope holds beside an error, counting, the audit advisory, and silence where nats-server is
silent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.errors import ApiError
from slipstream.engine.message import Inbound
from slipstream.engine.routing import Service
from slipstream.errors import StorageError

if TYPE_CHECKING:
    from slipstream.engine.account import Account
    from slipstream.engine.jetstream import JetStream

PREFIX = "$JS.API."
TYPE_PREFIX = "io.nats.jetstream.api.v1."


@dataclass(slots=True)
class Request:
    """One API call."""

    tokens: list[str]  # of the subject, behind the operation: the stream, the consumer ...
    body: bytes
    message: Inbound
    strict: bool = True  # unknown fields are errors

    @property
    def is_empty(self) -> bool:
        """No bytes, or a JSON object without keys."""
        return not self.body or b"".join(self.body.split()) == b"{}"

    @property
    def has_json(self) -> bool:
        """Whether an optional body is there: anything that begins like JSON."""
        return self.body.lstrip()[:1] in (b"{", b"[")


Handler = Callable[["JetStream", Request], dict[str, Any] | None]


@dataclass(slots=True, frozen=True)
class Operation:
    """An entry of the API."""

    name: str  # the subject behind $JS.API., without stream and consumer
    tokens: int  # how many follow; -1: at least one
    response: str  # the type, without its prefix
    handler: Handler
    zeros: dict[str, Any]  # what the envelope holds beside an error
    counted: bool = True  # in the account's API statistics, when it succeeds


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
        subject = message.subject.decode("utf-8", "replace")
        if self._domain_prefix and subject.startswith(self._domain_prefix):
            return self._mapped(subject[len(self._domain_prefix) :], message)
        rest = subject[len(PREFIX) :]
        if rest.startswith(("CONSUMER.MSG.NEXT.", "DIRECT.GET.")):
            return 0  # the consumer or stream itself answers, or nobody is there
        operation, tokens = self._find(rest)
        if operation is None:
            return 1
        request = Request(tokens, message.body(), message, self.js.engine.options.strict)
        self._answer(operation, request, subject)
        return 1

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
                behind = tokens[n:]
                if operation.tokens == len(behind) or (operation.tokens < 0 and behind):
                    return operation, behind
        return None, []

    def _answer(self, operation: Operation, request: Request, subject: str) -> None:
        js = self.js
        # The message is only ours during the call, and a handler may publish.
        reply, session = request.message.reply, request.message.session
        envelope: dict[str, Any] = {"type": TYPE_PREFIX + operation.response}
        try:
            if js.refused_level(request.message):
                raise ApiError(10185)
            if not js.limits.jetstream:
                raise ApiError(10039)
            fields = operation.handler(js, request)
            if fields is None:
                return
            envelope.update(fields)
        except (ApiError, StorageError, OSError) as failure:
            error = failure if isinstance(failure, ApiError) else ApiError(10051, err=str(failure))
            js.api_errors += 1
            js.api_total += not operation.counted
            envelope["error"] = error.body
            envelope.update(operation.zeros)
        js.api_total += operation.counted
        response = msgspec.json.encode(envelope)
        if reply:
            js.account.send(reply, b"", b"", response)
        js.advisories.api_audit(session, subject, request.body, response)


class SystemApi(Service):
    """The API in the system account, which has no JetStream of its own."""

    def __init__(self, account: "Account") -> None:
        self._account = account
        account.add_service(b"$JS.API.>", self)

    def stop(self) -> None:
        """Answer no more."""
        self._account.remove_service(b"$JS.API.>", self)

    def handle(self, message: Inbound) -> int:
        rest = message.subject[len(PREFIX) :]
        if rest.startswith((b"META.", b"SERVER.", b"ACCOUNT.")):
            return 1  # calls of a cluster's administration, which has nobody to answer here
        kind = "account_info_response" if rest == b"INFO" else "system_response"
        answer = {"type": TYPE_PREFIX + kind, "error": ApiError(10039).body}
        if message.reply:
            self._account.send(message.reply, b"", b"", msgspec.json.encode(answer))
        return 1


def page(items: list[Any], offset: int, size: int) -> tuple[dict[str, int], list[Any]]:
    """The paging fields and the items of a page."""
    start = min(max(offset, 0), len(items))
    return {"total": len(items), "offset": start, "limit": size}, items[start : start + size]
