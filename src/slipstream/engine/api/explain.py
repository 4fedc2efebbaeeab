"""Slipstream's own question, beside nats-server's API: why does a consumer deliver or not?

``$SLIPSTREAM.CONSUMER.EXPLAIN.<stream>.<consumer>`` is answered with an `Explanation` as JSON, or
with ``{"error": {...}}`` as the API has errors. On other servers nobody listens there, so a client
learns at once that it has to find out by itself (`client/jetstream/why.py`).
"""

from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.model.error_codes import ErrorCode
from slipstream.model.own_subjects import EXPLAIN

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream

PREFIX = EXPLAIN.encode()


class ExplainService(Service):
    """Answers for the streams of one account."""

    def __init__(self, js: "JetStream") -> None:
        self.js = js
        js.account.add_service(PREFIX + b"*.*", self)

    def handle(self, message: Inbound) -> int:
        names = message.subject[len(PREFIX) :].decode("utf-8", "replace").split(".")
        try:
            body = self._explain(*names)
        except ApiError as error:
            body = msgspec.json.encode({"error": error.body})
        if message.reply:
            self.js.account.send(message.reply, b"", b"", body)
        return 1

    def _explain(self, stream_name: str, consumer_name: str) -> bytes:
        stream = self.js.streams.get(stream_name)
        if stream is None:
            raise ApiError(ErrorCode.STREAM_NOT_FOUND)
        consumer = stream.consumers.get(consumer_name)
        if consumer is None:
            raise ApiError(ErrorCode.CONSUMER_NOT_FOUND)
        from slipstream.engine.consumer.explain import facts_of  # few ask
        from slipstream.model.why import explain

        return msgspec.json.encode(explain(facts_of(consumer)))
