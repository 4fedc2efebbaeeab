"""How far a stream is in a Delta table.

Delta has a place for it: transactions of applications, a number under a name, which are part of a
commit and stay when the log is cleaned. A stream has three of them:

    slipstream.<stream>.created     when the stream was made, in nanoseconds
    slipstream.<stream>.sequence    everything up to here is in the table, or rejected
    slipstream.<stream>.lost        messages that were gone before they were read

Who may commit is a property of the table, ``slipstream.<stream>.writer``: a text, that changes when
a writer begins and not with each commit.
"""

from deltalake import DeltaTable, Transaction

from slipstream.model.times import text_ns, time_text
from slipstream.tables.positions import PREFIX, Position


def writer_property(stream: str) -> str:
    """The name of the table's property that says who may commit."""
    return f"{PREFIX}{stream}.writer"


def position_in(table: DeltaTable, stream: str) -> Position | None:
    """Where a stream stands; None if nothing of it was ever written."""
    writer = table.metadata().configuration.get(writer_property(stream))
    if writer is None:
        return None
    created = table.transaction_version(f"{PREFIX}{stream}.created") or 0
    return Position(
        time_text(created) if created else "",
        table.transaction_version(f"{PREFIX}{stream}.sequence") or 0,
        writer,
        table.transaction_version(f"{PREFIX}{stream}.lost") or 0,
    )


def transactions_of(stream: str, to: Position) -> list[Transaction]:
    """What a commit says of the position, the writer apart."""
    numbers = {
        "created": text_ns(to.created) if to.created else 0,
        "sequence": to.sequence,
        "lost": to.lost,
    }
    return [Transaction(f"{PREFIX}{stream}.{name}", number) for name, number in numbers.items()]
