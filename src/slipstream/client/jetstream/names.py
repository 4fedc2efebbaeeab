"""Names of streams and consumers, and subjects: which may be, and new ones."""

import random

from slipstream.client.jetstream.errors import (
    EmptyStreamNameError,
    InvalidConsumerNameError,
    InvalidNameError,
    InvalidStreamNameError,
)
from slipstream.client.payload import subject_bytes
from slipstream.wire.nuid import Nuid

_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


def check_stream_name(name: str) -> str:
    """`name`, if a stream can have it; raises `InvalidStreamNameError`."""
    if not name:
        raise EmptyStreamNameError("a stream needs a name")
    return _check("stream", name, InvalidStreamNameError)


def check_consumer_name(name: str) -> str:
    """`name`, if a consumer can have it; raises `InvalidConsumerNameError`."""
    if not name:
        raise InvalidConsumerNameError("a consumer needs a name")
    return _check("consumer", name, InvalidConsumerNameError)


def _check(kind: str, name: str, error: type[InvalidNameError]) -> str:
    wrong = sorted({c for c in name if c in _FORBIDDEN})
    if wrong:
        raise error(
            f"a {kind} cannot be named {name!r}: {' '.join(map(repr, wrong))} may not be in it "
            "(no blanks, dots, wildcards or path separators)"
        )
    return name


def check_subject(subject: str) -> str:
    """`subject`, if messages can have it or match it; raises `InvalidSubjectError`."""
    subject_bytes(subject)
    return subject


def new_name() -> str:
    """A name that nobody else has."""
    return Nuid(random.SystemRandom()).next()
