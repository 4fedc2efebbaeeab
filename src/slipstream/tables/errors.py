"""What can go wrong between a stream and its table.

slipstream.Error
└── TableError                     the table could not be read or written
    ├── NoTableError               there is no such table
    ├── OtherWriterError           another writer has taken the stream over
    ├── PositionLostError          the table no longer says how far the stream was written
    └── StreamReplacedError        the stream is not the one that the table was written from
"""

from collections.abc import Iterator
from contextlib import contextmanager

from slipstream.errors import Error

_REASON_LENGTH_MAX = 300


class TableError(Error):
    """A table could not be read or written."""


class NoTableError(TableError):
    """There is no such table."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no table {name}: its writer makes it")


class OtherWriterError(TableError):
    """Another writer has taken over the stream; what this one was about to commit is not there.

    Nothing is lost: the other writer goes on where the table ends.
    """


class PositionLostError(TableError):
    """No snapshot that is left says how far the stream was written."""


class StreamReplacedError(TableError):
    """The stream was made anew, or an older state has replaced it."""


@contextmanager
def said(name: str, what: str) -> Iterator[None]:
    """Raise what the libraries of the formats raise as `TableError`, with the table and what was
    being done to it."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        raise TableError(f"table {name}: {what} failed: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """What a library says of an error, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_LENGTH_MAX else f"{text[:_REASON_LENGTH_MAX]} ..."
