"""pyiceberg's transactions, made once and committed once."""

from typing import TYPE_CHECKING

from pyiceberg.table import Transaction

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class OneTransaction(Transaction):
    """pyiceberg's, but the metadata with the changes is worked out once for each change.

    pyiceberg does so at every look, some twenty times a commit, and copies all snapshots each time.
    """

    _seen: "tuple[object, TableMetadata] | None" = None

    @property
    def table_metadata(self) -> "TableMetadata":
        """The table's metadata with the changes of this transaction."""
        if not self._updates:
            return self._table.metadata
        if self._seen is None or self._seen[0] is not self._updates:
            self._seen = (self._updates, super().table_metadata)
        return self._seen[1]


def commit_once(transaction: Transaction) -> None:
    """Commit, on condition that the table is as the transaction knows it.

    By itself pyiceberg makes a commit that failed again on top of whatever was in between: rows
    that another writer has committed, too, would be there twice. And it deletes the files of a
    commit that the catalog has refused, though a refusal may be the answer to a repeated request
    of which the first one was granted. Both concern the producers of snapshots that the
    transaction remembers, so it is made to forget them; unused files are deleted later.
    """
    transaction._snapshot_producers.clear()
    transaction.commit_transaction()
