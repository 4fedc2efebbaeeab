"""What users hand over, as the bytes that go on the wire: subjects, payloads, headers."""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import slipstream.wire.ascii as char
from slipstream.client.codecs import Registry, encode
from slipstream.client.errors import InvalidSubjectError
from slipstream.wire.headers import Headers

# bytes, bytearray, memoryview, str, or anything else that `slipstream.client.codecs` encodes.
Payload: TypeAlias = object
HeadersLike: TypeAlias = Headers | Mapping[str, str] | Iterable[tuple[str, str]] | bytes

_FIELD_NAME = re.compile(r"[!-9;-~]+").fullmatch  # visible ASCII without the colon

# A server closes the connection at 4096 bytes of arguments; sizes and blanks need some of them.
SUBJECTS_MAX_BYTES = 4000


def payload_bytes(data: Payload, registry: Registry | None = None) -> bytes:
    """`data` as bytes: text as UTF-8, other values by their codec. Raises `CodecError`."""
    if isinstance(data, bytes):
        return data if type(data) is bytes else bytes(data)
    return encode(data, None, registry)


def subject_bytes(subject: str) -> bytes:
    """`subject` as bytes; raises `InvalidSubjectError` if no server would route it."""
    encoded = subject.encode()
    view = encoded
    n = len(encoded)
    previous = char.DOT  # as if an empty token stood in front
    for i in range(n):
        c = view[i]
        if c in (char.SPACE, char.CR, char.LF, char.TAB, char.FF):
            raise InvalidSubjectError(f"{subject!r} has a blank or line break in it")
        if c == char.DOT and previous == char.DOT:
            break
        previous = c
    else:
        if previous != char.DOT and n <= SUBJECTS_MAX_BYTES:
            return encoded
    raise InvalidSubjectError(_what_is_wrong(subject, n))


def _what_is_wrong(subject: str, size: int) -> str:
    if not subject:
        return "the subject is empty"
    if size > SUBJECTS_MAX_BYTES:
        return f"a subject of {size} bytes is too long; the bound is {SUBJECTS_MAX_BYTES}"
    return f"{subject!r} has an empty token: no dot at either end, none beside another"


def as_headers(headers: HeadersLike | None) -> Headers:
    """A copy of `headers` as a multi-map; raises TypeError for what is no headers."""
    if isinstance(headers, bytes):
        return Headers.parse(headers) if headers else Headers()
    if isinstance(headers, str) or (headers is not None and not hasattr(headers, "__iter__")):
        raise TypeError(f"headers are a mapping or pairs, not {type(headers).__name__}")
    return Headers(headers)


def header_bytes(headers: HeadersLike) -> bytes:
    """The header block of `headers`; b"" if there are none. Bytes are a block already."""
    if isinstance(headers, bytes):
        return headers
    if isinstance(headers, Headers):
        return headers.encode() if len(headers) or headers.status else b""
    if not headers:
        return b""
    block = _plain_block(headers) if isinstance(headers, Mapping) else b""
    return block or as_headers(headers).encode()


def _plain_block(fields: Mapping[str, str]) -> bytes:
    """The block of a dict of text, which is most of what there is; b"" for anything else."""
    text = "NATS/1.0\r\n"
    for name, value in fields.items():
        if type(value) is not str or not _FIELD_NAME(name) or "\r" in value or "\n" in value:
            return b""  # whatever is wrong, `Headers` says it
        text += f"{name}: {value}\r\n"
    return f"{text}\r\n".encode("utf-8", "surrogateescape")
