"""The last message on a subject, or the one of a sequence, with as little work as there can be.

Key-value gets and object infos come through here. A stream with `allow_direct` answers itself, with
the message as it is and what is known of it in headers, which are only searched, not parsed; any
other is asked through the API (spec streams.md section 7).
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.client.errors import NoRespondersError
from slipstream.client.jetstream import stored
from slipstream.client.jetstream.document import Timestamp
from slipstream.client.jetstream.errors import (
    ApiError,
    MessageNotFoundError,
)
from slipstream.client.message import Message
from slipstream.wire.headers import find

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream


class Found(msgspec.Struct, frozen=True):
    """A message in a stream; `block` is its header block."""

    subject: str
    data: bytes
    sequence: int
    timestamp_ns: int
    block: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header; None if there is none."""
        value = find(self.block, 0, len(self.block), name.encode())
        return None if value is None else value.decode("utf-8", "surrogateescape")


async def last_message(js: "JetStream", stream: str, subject: str, is_direct: bool) -> Found | None:
    """The last message on `subject`, None if there is none. Raises `StreamNotFoundError`."""
    asked = {"last_by_subj": subject}
    if is_direct:
        return await _direct(js, stream, f".{subject}", b"", asked)
    return await _from_leader(js, stream, asked)


async def message_at(js: "JetStream", stream: str, sequence: int, is_direct: bool) -> Found | None:
    """The message of a sequence, None if there is none. Raises `StreamNotFoundError`."""
    asked = {"seq": sequence}
    if is_direct:
        return await _direct(js, stream, "", b'{"seq":%d}' % sequence, asked)
    return await _from_leader(js, stream, asked)


async def message_after(js: "JetStream", stream: str, subject: str, sequence: int) -> Found | None:
    """The first message on `subject` behind `sequence`, asked of the leader; None if none is."""
    return await _from_leader(js, stream, {"seq": sequence + 1, "next_by_subj": subject})


async def _from_leader(js: "JetStream", stream: str, asked: dict[str, Any]) -> Found | None:
    try:
        message = await stored.get(js.api, stream, asked, False)
    except MessageNotFoundError:
        return None
    return Found(
        subject=message.subject,
        data=message.data,
        sequence=message.sequence,
        timestamp_ns=0 if message.time is None else message.time.ns,
        block=message.headers.encode() if len(message.headers) else b"",
    )


async def _direct(
    js: "JetStream", stream: str, tail: str, body: bytes, asked: dict[str, Any]
) -> Found | None:
    subject = f"{js.api.prefix}.DIRECT.GET.{stream}{tail}"
    try:
        message = await js.connection.request(subject, body, timeout=js.timeout)
    except NoRespondersError:
        # The stream is gone, or its server is about to stop or just back: the API knows.
        return await _from_leader(js, stream, asked)
    if message.status:
        if message.status == 404:
            return None
        raise ApiError(message.status, 0, message.description, f"direct get from {stream}")
    try:
        return _found(message)
    except ValueError as error:
        raise stored.malformed(message) from error


def _found(message: Message) -> Found:
    block = message.header_block
    time = Timestamp.parse(_last(block, b"\r\nNats-Time-Stamp:"))
    return Found(
        subject=_last(block, b"\r\nNats-Subject:"),
        data=message.data,
        sequence=int(_last(block, b"\r\nNats-Sequence:")),
        timestamp_ns=0 if time is None else time.ns,
        block=block,
    )


def _last(block: bytes, name: bytes) -> str:
    """The last value of a header: the server's own. A republished message may have had others."""
    at = block.rindex(name) + len(name)
    return block[at : block.index(b"\r\n", at)].strip().decode("utf-8", "surrogateescape")
