"""Names of streams and consumers: which may be, and new ones."""

import random

from slipstream.client.jetstream.errors import InvalidNameError
from slipstream.wire.nuid import Nuid

_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


def check_stream_name(name: str) -> str:
    """`name`, if a stream can have it; raises `InvalidNameError`."""
    return _check("stream", name)


def check_consumer_name(name: str) -> str:
    """`name`, if a consumer can have it; raises `InvalidNameError`."""
    return _check("consumer", name)


def _check(kind: str, name: str) -> str:
    if not name:
        raise InvalidNameError(f"a {kind} needs a name")
    wrong = sorted({c for c in name if c in _FORBIDDEN})
    if wrong:
        raise InvalidNameError(
            f"a {kind} cannot be named {name!r}: {' '.join(map(repr, wrong))} may not be in it "
            "(no blanks, dots, wildcards or path separators)"
        )
    return name


def new_name() -> str:
    """A name that nobody else has."""
    return Nuid(random.SystemRandom()).next()
