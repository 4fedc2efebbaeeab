"""One Delta table. A commit is an entry of its log, which has files and position together.

delta-rs is told to try a commit once: then it is made only if the log ends where we have read it.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from slipstream.errors import ConfigError
from slipstream.tables.delta.files import DataFiles
from slipstream.tables.delta.log import (
    cut_torn,
    first_entry,
    sync_checkpoint,
    sync_entries,
)
from slipstream.tables.delta.positions import position_in, transactions_of, writer_property
from slipstream.tables.disk import DELTA_LOG, check_free, make_folder
from slipstream.tables.errors import NoTableError, TableError
from slipstream.tables.layout import Layout, column_of_field, partition_names, schema_of, shaped
from slipstream.tables.merging import ROW_ORDER, File, mergeable
from slipstream.tables.options import BY_TIME, Column, TableOptions
from slipstream.tables.parts import Wanted
from slipstream.tables.positions import Position

_TIME, _UNIT = "slipstream.time", "slipstream.partition"
# A commit a second makes an entry a second: entries that a checkpoint replaces go after an hour.
_CONFIGURATION = {"delta.logRetentionDuration": "interval 1 hours"}
_PLAIN_FEATURES = {"timestampNtz"}  # local times: data files are read as ever
_BY_ITSELF = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


class _Added(msgspec.Struct):
    """A data file as the log has it."""

    path: str
    size_bytes: int
    partition: dict[str, str | None] | None = None


class DeltaPart:
    """A table in a folder or an object store, as a `Part`."""

    def __init__(self, where: str, name: tuple[str, ...], properties: dict[str, str]) -> None:
        if where.startswith(("http://", "https://", "file:", "catalog:")) or not where:
            raise ConfigError(
                f"Delta table at {where!r}: it is in a folder, or at the URL of an object store "
                "such as s3://bucket/path"
            )
        self.name = ".".join(name)
        self._folder: Path | None = None
        if "://" in where:
            self._uri = "/".join([where.rstrip("/"), *name])
        else:
            where = str(Path(where).expanduser().absolute())
            self._folder = Path(where).joinpath(*name)
            self._uri = self._folder.as_uri()
        if any("\\" in part or unquote(part) != part for part in (where, *name)):
            raise ConfigError(
                f"Delta table {self.name} at {where}: its path has a backslash, or % and two "
                "digits as in a URL; delta-rs would take it for another path"
            )
        if properties and self._folder is not None:
            raise ConfigError(
                f"Delta table in folder {where}: it takes no properties, as one in an object store "
                f"does: {', '.join(properties)}"
            )
        self._properties = properties
        self._files = DataFiles(self._uri, self._folder, properties)
        self._synced = -1
        self.table: DeltaTable

    def make(self, layout: Layout) -> None:
        """Read the table; make it if it is not there."""
        if self._folder is not None:
            make_folder(self._folder)
            check_free(self._folder, DELTA_LOG)
            cut_torn(self._folder)
        try:
            self.load()
        except NoTableError:
            try:
                self._create(layout)
            except CommitFailedError:  # somebody else has made it meanwhile
                pass
            self.load()
        self._synced = first_entry(self._folder) - 1
        self._sync()

    def _create(self, layout: Layout) -> None:
        schema = schema_of(layout.columns)
        is_partitioned = layout.partition != "none"
        if is_partitioned:
            schema = schema.append(pa.field(BY_TIME, pa.string()))
        DeltaTable.create(
            self._uri,
            schema,
            mode="ignore",  # somebody else may have made it meanwhile
            partition_by=[BY_TIME] if is_partitioned else None,
            configuration=_CONFIGURATION | {_TIME: layout.time, _UNIT: layout.partition},
            storage_options=self._properties or None,
            raise_if_key_not_exists=False,
        )

    def load(self) -> None:
        """Read the table, which has to be there."""
        try:
            self.table = DeltaTable(self._uri, storage_options=self._properties or None)
        except TableNotFoundError as error:
            raise NoTableError(self.name) from error

    def refresh(self) -> None:
        """Read again what others have committed."""
        self.table.update_incremental()

    def position(self, stream: str) -> Position | None:
        """Where a stream stands; None if nothing of it was ever written."""
        try:
            return position_in(self.table, stream)
        except DeltaError:  # it is read from the log, and others have cleaned that since
            self.refresh()
            return position_in(self.table, stream)

    def columns(self) -> dict[str, Column]:
        """The columns, in their order, without the partition."""
        return {
            field.name: column_of_field(field)
            for field in pa.schema(self.table.schema())
            if field.name != BY_TIME
        }

    def add_columns(self, columns: Mapping[str, Column]) -> bool:
        """Add columns, on condition that the table is as we know it."""
        fields: list[Field] = list(Schema.from_arrow(schema_of(columns)).fields)
        return self._commit(
            lambda once: self.table.alter.add_columns(
                fields, commit_properties=once, post_commithook_properties=_BY_ITSELF
            )
        )

    def append(self, rows: pa.Table | None, stream: str, to: Position) -> bool:
        """Append on condition that the table is as we know it."""
        if rows is None:  # who may commit is all that changes
            return self._commit(
                lambda once: self.table.alter.set_table_properties(
                    {writer_property(stream): to.writer},
                    raise_if_not_exists=False,
                    commit_properties=once,
                    post_commithook_properties=_BY_ITSELF,
                )
            )
        actions = self._files.write(self._in_partitions(rows))
        return self._change(actions, transactions_of(stream, to))

    def _in_partitions(self, rows: pa.Table) -> pa.Table:
        """Rows with the table's columns, the partition among them."""
        rows = shaped(rows, schema_of(self.columns()))
        configuration = self.table.metadata().configuration
        unit = configuration.get(_UNIT, "none")
        if unit == "none":
            return rows
        return rows.append_column(BY_TIME, partition_names(rows[configuration[_TIME]], unit))

    def _change(
        self, actions: Sequence[AddAction | RemoveAction], transactions: list[Transaction]
    ) -> bool:
        """Commit files that came and went."""
        return self._commit(
            lambda once: self.table.create_write_transaction(
                list(actions),
                "append",
                self.table.schema(),
                self.table.metadata().partition_columns,
                commit_properties=once,
                post_commithook_properties=_BY_ITSELF,
            ),
            transactions,
        )

    def _commit(
        self,
        make: Callable[[CommitProperties], None],
        transactions: list[Transaction] | None = None,
    ) -> bool:
        """Commit if the log ends where we have read it, and read the log again."""
        version = self.table.version()
        self._sync()
        try:
            make(CommitProperties(max_commit_retries=0, app_transactions=transactions))
        except CommitFailedError:
            self.table.update_incremental()
            return False
        except DeltaError:
            # So says delta-rs, too, where the entries since then are in a checkpoint alone.
            self.table.update_incremental()
            if self.table.version() == version:
                raise
            return False
        self.table.update_incremental()
        self._sync()
        return True

    def _sync(self) -> None:
        """Have the log on the disk as far as we have read it, what others have written as well."""
        version = self.table.version()
        sync_entries(self._folder, range(self._synced + 1, version + 1))
        self._synced = version

    def batches(self, wanted: Wanted, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of rows."""
        self._check_plain()
        paths = [file.known.path for file in self._data_files()]
        yield from self._files.batches(paths, schema_of(self.columns()), wanted, list(columns))

    def files(self, wanted: Wanted) -> list[str]:
        """The data files. Raises `TableError` if other programs have deleted rows in them."""
        self._check_plain()
        if self._folder is None:
            return self.table.file_uris()
        # By their names: delta-rs gives paths of folders with a space or the like as of a URL.
        return [str(self._folder / unquote(file.known.path)) for file in self._data_files()]

    def _check_plain(self) -> None:
        if self._has_features():
            raise TableError(
                f"table {self.name} has features of Delta that other programs have turned on, such "
                "as deletion vectors: read it with delta-rs, or on Spark with Delta's own package"
            )

    def _has_features(self) -> bool:
        return bool(set(self.table.protocol().reader_features or ()) - _PLAIN_FEATURES)

    # -- upkeep --------------------------------------------------------------------------------

    def tend(self, options: TableOptions, *, deletes_unused: bool) -> None:
        """Merge small files, write a checkpoint, forget entries of the log and unused files.

        The table is read before: what others have committed since would be taken for unused.
        """
        self.refresh()
        self.compact(options)
        self.table.create_checkpoint()
        sync_checkpoint(self._folder, self.table.version())
        self.table.cleanup_metadata()
        if deletes_unused:
            hours = math.ceil(options.unused_seconds / 3600)
            self.refresh()
            self.table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
            self.table.update_incremental()

    def compact(self, options: TableOptions) -> int:
        """Merge small files where there are enough of them; how many were merged.

        A commit of somebody else in between is left to win: 0 then.
        """
        if self._has_features():
            return 0
        actions: list[AddAction | RemoveAction] = []
        for group in mergeable(self._data_files(), options):
            rows = pa.concat_tables([self._read(file) for file in group]).sort_by(ROW_ORDER)
            actions += self._files.write(rows, is_change=False)
            actions += [_removed(file) for file in group]
        merged = sum(isinstance(action, RemoveAction) for action in actions)
        return merged if merged and self._change(actions, []) else 0

    def _data_files(self) -> Iterator[File[_Added]]:
        found = pa.table(self.table.get_add_actions()).to_pylist()
        for added in msgspec.convert(found, list[_Added]):
            yield File(str(added.partition), added.size_bytes, added)

    def _read(self, file: _Added) -> pa.Table:
        """A file with the table's columns, the partition among them."""
        return self._in_partitions(self._files.read(file.path))


def _removed(file: _Added) -> RemoveAction:
    now = int(time.time() * 1000)
    return RemoveAction(file.path, False, now, file.size_bytes, file.partition)
