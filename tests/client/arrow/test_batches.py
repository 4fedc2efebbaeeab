"""Buffers become record batches that pandas and polars take as they are."""

import pandas
import polars
import pytest

from slipstream.client.arrow.batches import COLUMNS, flags_of, schema, take_batch
from slipstream.client.arrow.columns import MessageColumns
from tests.client.arrow.test_columns import add_delivered, add_direct, direct


def gathered() -> MessageColumns:
    columns = MessageColumns(flags_of(COLUMNS))
    assert add_direct(columns, direct(3, own=b"A: 1\r\nB: 2\r\nA: 3\r\n"), b"first") == 1
    assert add_direct(columns, direct(5, previous=3, subject=b"caf\xe9 \xc3\xa9"), b"") == 1
    assert add_direct(columns, direct(6, previous=5, own=b"C: x\r\n"), b"\x00\xff") == 1
    return columns


def test_a_batch_holds_the_messages_row_by_row() -> None:
    columns = gathered()
    batch = take_batch(columns, schema())
    batch.validate(full=True)
    assert columns.rows == 0
    assert batch["subject"].to_pylist() == ["orders.new", "caf\ufffd é", "orders.new"]
    assert batch["sequence"].to_pylist() == [3, 5, 6]
    assert batch["data"].to_pylist() == [b"first", b"", b"\x00\xff"]
    assert batch["headers"].to_pylist() == [[("A", ["1", "3"]), ("B", ["2"])], [], [("C", ["x"])]]
    assert batch["timestamp"][0].value == 1772366400_500_000_000


def test_an_empty_batch_is_a_batch() -> None:
    batch = take_batch(MessageColumns(flags_of(COLUMNS)), schema())
    batch.validate(full=True)
    assert batch.num_rows == 0


def test_only_the_wanted_columns_are_built_in_the_wanted_order() -> None:
    wanted = ("reply", "size", "sequence")
    columns = MessageColumns(flags_of(wanted))
    assert add_delivered(columns, b"$JS.ACK.S.c.1.42.5.17.9") == 1
    batch = take_batch(columns, schema(wanted))
    batch.validate(full=True)
    assert batch.to_pylist() == [{"reply": "$JS.ACK.S.c.1.42.5.17.9", "size": 4, "sequence": 42}]


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'body': there are subject, sequence"):
        flags_of(["body"])


def test_pandas_and_polars_take_a_batch_in_one_call() -> None:
    frame = take_batch(gathered(), schema()).to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["timestamp"][0] == pandas.Timestamp("2026-03-01T12:00:00.5Z")
    table = polars.from_arrow(take_batch(gathered(), schema()))
    assert isinstance(table, polars.DataFrame)
    assert table["sequence"].to_list() == [3, 5, 6]
