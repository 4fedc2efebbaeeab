"""`$JS.API` in the system account: what is about the whole server, or about its group."""

from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.api.cluster import OF_SYSTEM
from slipstream.engine.api.dispatch import PREFIX, TYPE_PREFIX, Fields, Request
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.group import Group
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.errors import StorageError
from slipstream.model.error_codes import ErrorCode

if TYPE_CHECKING:
    from slipstream.engine.session.account import Account
    from slipstream.log.stream_store import Store

PURGE_ACCOUNT = b"ACCOUNT.PURGE."


class SystemApi(Service):
    """The API in the system account, which has no JetStream of its own."""

    def __init__(self, account: "Account", store: "Store | None") -> None:
        self._account = account
        self._store = store
        account.add_service(b"$JS.API.>", self)

    def stop(self) -> None:
        """Answer no more."""
        self._account.remove_service(b"$JS.API.>", self)

    def handle(self, message: Inbound) -> int:
        rest = message.subject[len(PREFIX) :]
        reply = message.reply
        group = self._account.engine.group
        if rest in OF_SYSTEM and group is not None:
            self._answer_of(group, rest, message)
        elif rest.startswith(PURGE_ACCOUNT) and b"." not in rest[len(PURGE_ACCOUNT) :]:
            self._purge(rest[len(PURGE_ACCOUNT) :].decode(errors="surrogateescape"), reply)
        elif rest.startswith((b"META.", b"SERVER.", b"ACCOUNT.")):
            return 1  # calls of a cluster's administration that nobody answers here
        else:
            kind = "account_info_response" if rest == b"INFO" else "system_response"
            self._answer(
                reply,
                {
                    "type": TYPE_PREFIX + kind,
                    "error": ApiError(ErrorCode.NOT_ENABLED_FOR_ACCOUNT).body,
                },
            )
        return 1

    def _answer_of(self, group: Group, name: bytes, message: Inbound) -> None:
        kind, handler = OF_SYSTEM[name]
        answer: dict[str, object] = {"type": TYPE_PREFIX + kind}
        strict = self._account.engine.options.strict
        try:
            answer.update(handler(group, Request([], message.body(), message, strict)))
        except ApiError as refused:
            answer["error"] = refused.body
        self._answer(message.reply, answer)

    def _answer(self, reply: bytes, answer: Fields) -> None:
        if reply:
            self._account.send(reply, b"", b"", msgspec.json.encode(answer))

    def _purge(self, name: str, reply: bytes) -> None:
        """Delete every stream of an account, also of one that the configuration has no more."""
        account = self._account.engine.accounts.get(name)
        answer: dict[str, object] = {"type": TYPE_PREFIX + "account_purge_response"}

        def purged(failure: Exception | None) -> None:
            fields = answer | {"initiated": failure is None}
            if failure is not None:
                known = failure if isinstance(failure, ApiError) else None
                fields["error"] = (
                    known or ApiError(ErrorCode.STREAM_GENERAL_ERROR, err=str(failure))
                ).body
            self._answer(reply, fields)

        try:
            if account is not None and account.jetstream is not None:
                for stream in list(account.jetstream.streams.values()):
                    account.jetstream.delete_stream(stream)
                account.jetstream.when_kept(purged)
                return
            if self._store is not None:
                for _, files in list(self._store.streams(name)):
                    files.discard()
        except (ApiError, StorageError, OSError) as failure:
            purged(failure)
            return
        purged(None)
