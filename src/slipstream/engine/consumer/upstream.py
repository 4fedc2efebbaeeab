"""Consumers that carry a stream's messages to its mirrors and to those that have it as a source.

Their follower asks for `sourcing`. On a stream that keeps its messages by limits the consumer is
`direct`: nobody sees it, it lives in memory and ends when nobody listens. On a stream by interest
or a work queue it becomes a durable one, whose messages stay until the follower says in its answers
to flow control that it has stored them.

A stream made anew under its name has another identity, which a follower notices by that.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.consumer.config import MAX_ACK_PENDING, ConsumerConfig
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.upstream_checks import short_hash
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_STREAM_IDENTITY
from slipstream.wire.headers import find, with_fields

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream


def identity(stream: "Stream") -> str:
    """What tells a stream from an earlier one of the same name."""
    return short_hash(f"{stream.account.name} {stream.name} {stream.created}")


def identify(stream: "Stream", message: Inbound) -> bytes:
    """The header block that says which stream answers `message`. Raises `ApiError`
    CONSUMER_STREAM_IDENTITY_MISMATCH if its sender knows another one."""
    known = find(message.data, message.header_start, message.body_start, NATS_STREAM_IDENTITY)
    own = identity(stream)
    if known and known != own.encode():
        raise ApiError(ErrorCode.CONSUMER_STREAM_IDENTITY_MISMATCH, msg=own)
    return with_fields(b"", [(NATS_STREAM_IDENTITY, own.encode())])


def fit_to_retention(stream: "Stream", name: str, config: ConsumerConfig) -> str:
    """Make what a follower asked for what the stream can give; the consumer's name."""
    if not config.direct:
        return name
    if stream.config.retention == "limits":
        name = f"{name}-{stream.engine.new_id()[-8:]}"
        config.name = name
        return name
    config.direct = False
    config.durable_name = config.name = name
    config.ack_policy = "flow_control"
    config.ack_wait = config.inactive_threshold = 0
    config.max_deliver = -1
    config.max_ack_pending = MAX_ACK_PENDING
    return name


def take_up(
    consumer: Consumer, config: ConsumerConfig, done: Callable[[Exception | None], None]
) -> None:
    """The follower of a durable consumer has come back, perhaps with another deliver subject.

    What it has not acknowledged is delivered once more; it knows itself what it has stored. `done`
    is called when that is kept, or with the error.
    """
    newest = consumer.life.newest_config
    own = msgspec.structs.replace(newest, deliver_subject=config.deliver_subject)

    def kept(error: Exception | None) -> None:
        if error is None:
            _go_on(consumer, own)
        done(error)

    consumer.life.keep_config(own, kept)


def _go_on(consumer: Consumer, own: ConsumerConfig) -> None:
    consumer.configure(own)
    delivery = consumer.delivery
    assert isinstance(delivery, PushDelivery)
    delivery.configured()
    consumer.life.restart_at(consumer.floor_stream_seq + 1)
    delivery.rebind(own.deliver_subject, own.deliver_group)
