"""Storing what another stream has stored before: nobody waits for an acknowledgement.

The conditions that a publisher had set were met upstream and are not looked at again. What its
headers say of the message's life holds where the stream allows it, and says nothing where not.
"""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.session.message import Inbound
from slipstream.engine.stream.ingest_checks import HEADER_BYTES_MAX, Verdict
from slipstream.engine.stream.ttl import INVALID, parse_ttl
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_ROLLUP, NATS_TTL
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type


def store(
    stream: "Stream", subject: bytes, message: Inbound, ts: _int = 0, message_id: bytes = b""
) -> _int:
    """Store `message` under what the stream makes of `subject`, with the time `ts` (ns, 0 is now);
    its sequence. Raises `ApiError`, `StorageError`."""
    config = stream.config
    if stream.transform is not None:
        subject = stream.transform.map(subject)
    if config.sealed:
        raise ApiError(ErrorCode.STREAM_SEALED)
    if 0 <= config.max_msg_size < message.end - message.header_start:
        raise ApiError(ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
    stream.last_msg_id = b""
    if message.body_start == message.header_start:
        return stream.store_message(subject, message, False, ts)
    if message.body_start - message.header_start > HEADER_BYTES_MAX:
        raise ApiError(ErrorCode.STREAM_HEADER_EXCEEDS_MAXIMUM)
    rolls_up = config.allow_rollup_hdrs and not config.deny_purge
    if stream.ttls is None and not rolls_up and not message_id:
        return stream.store_message(subject, message, False, ts)
    verdict = Verdict(message_id=message_id)
    if rolls_up:
        verdict.rollup = _rollup(_value(message, NATS_ROLLUP))
    seq = stream.store_message(subject, message, verdict.rollup != "", ts)
    if stream.ttls is not None:
        ttl = parse_ttl(_value(message, NATS_TTL))
        if ttl != INVALID:
            stream.ttls.stored(seq, ttl, ts)
    stream.finish_message(seq, subject, verdict)
    return seq


def _value(message: Inbound, name: bytes) -> bytes:
    return find(message.data, message.header_start, message.body_start, name) or b""


def _rollup(value: bytes) -> str:
    kind = value.decode("utf-8", "replace").lower()
    return kind if kind in ("sub", "all") else ""
