"""What headers ask of a publish, in the order in which nats-server looks (streams.md 6.2)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipstream.engine.errors import ApiError
from slipstream.engine.message import Inbound
from slipstream.wire.headers import find, without, without_status

if TYPE_CHECKING:
    from slipstream.engine.stream import Stream

HEADER_BYTES_MAX = 65_535


@dataclass(slots=True)
class Verdict:
    """What the headers lead to, where they do not refuse the message."""

    message_id: bytes = b""
    duplicate_of: int = 0
    rollup: str = ""  # "sub" or "all"


def check_headers(stream: "Stream", subject: bytes, message: Inbound) -> Verdict:
    """Look at every header that means something. Raises `ApiError`."""

    def value(name: bytes) -> bytes | None:
        return find(message.data, message.header_start, message.body_start, name)

    verdict = Verdict()
    if value(b"Nats-Incr") is not None:
        raise ApiError(10168)
    expected_stream = value(b"Nats-Expected-Stream")
    if expected_stream is not None and expected_stream != stream.name.encode():
        raise ApiError(10060)
    if value(b"Nats-TTL") is not None:
        raise ApiError(10166)
    _check_subject_sequence(stream, subject, value(b"Nats-Expected-Last-Subject-Sequence"),
                            value(b"Nats-Expected-Last-Subject-Sequence-Subject"))  # fmt: skip
    expected = value(b"Nats-Expected-Last-Sequence")
    if expected is not None and _number(expected) != stream.log.last_seq:
        raise ApiError(10071, seq=stream.log.last_seq)
    if value(b"Nats-Schedule") is not None:
        if stream.config.max_msg_size >= 0:
            check_size(stream.config.max_msg_size, message)
        raise ApiError(10188)
    if value(b"Nats-Batch-Id") is not None:
        raise ApiError(10174)
    if value(b"Nats-Stream-Source") is not None:
        raise ApiError(10227)
    message_id = value(b"Nats-Msg-Id")
    if message_id:
        verdict.message_id = message_id
        verdict.duplicate_of = stream.dedupe.find(message_id)
        if verdict.duplicate_of:
            return verdict
    last_id = value(b"Nats-Expected-Last-Msg-Id")
    if last_id is not None and last_id != stream.last_msg_id:
        raise ApiError(10070, id=stream.last_msg_id.decode("utf-8", "replace"))
    rollup = value(b"Nats-Rollup")
    if rollup is not None:
        verdict.rollup = _rollup(stream, rollup)
    return verdict


def _check_subject_sequence(
    stream: "Stream", subject: bytes, expected: bytes | None, other: bytes | None
) -> None:
    if expected is None:
        if other is not None:
            raise ApiError(10193)
        return
    last = stream.log.last_of(other or subject)
    if _number(expected) != last:
        raise ApiError(10071, seq=last)


def _rollup(stream: "Stream", value: bytes) -> str:
    config = stream.config
    if not config.allow_rollup_hdrs or config.deny_purge:
        raise ApiError(10111, err="rollup not permitted")
    kind = value.decode("utf-8", "replace").lower()
    if kind not in ("sub", "all"):
        raise ApiError(10111, err=f'rollup value invalid: "{kind}"')
    return kind


def _number(text: bytes) -> int:
    """A sequence; -1, which none is, for anything else."""
    return int(text) if text.isdigit() else -1


def check_size(most: int, message: Inbound) -> None:
    """The stream's bound on headers and body together. Raises `ApiError`."""
    if message.end - message.header_start > most:
        raise ApiError(10054)


def clean_header(message: Inbound) -> None:
    """Take out of the headers what is not stored. Raises `ApiError` if they are too long."""
    size = message.body_start - message.header_start
    if size > HEADER_BYTES_MAX:
        raise ApiError(10097)
    start = message.header_start
    has_status = message.data[start + 8 : start + 10] != b"\r\n"
    asked = find(message.data, start, message.body_start, b"Nats-Request-Info") is not None
    if has_status or asked:
        block = without_status(message.header()) if has_status else message.header()
        if asked:
            block = without(block, b"Nats-Request-Info")
        body = message.body()
        message.data = block + body
        message.header_start = 0
        message.body_start = len(block)
        message.end = len(message.data)
