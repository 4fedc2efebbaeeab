"""Bodies as columns: what fits is a row, and what does not costs no other row its place."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import ConfigError
from slipstream.tables import TableOptions
from slipstream.tables.bodies import Fitting
from slipstream.tables.json_bodies import JsonBodies
from slipstream.tables.options import Column, column_of


def values(fitting: Fitting) -> dict[str, list[Any]]:
    """The columns as lists."""
    return {name: column.to_pylist() for name, column in fitting.columns.items()}


def columns(**types: str) -> dict[str, Column]:
    """Columns of these types."""
    return {name: column_of(kind) for name, kind in types.items()}


def test_types_come_from_the_first_values() -> None:
    bodies = JsonBodies({})
    read = bodies.fit([b'{"t":true,"n":1,"d":1.5,"s":"x","o":{"a":[1, 2]},"l":[1]}'])
    kinds = {name: str(column.type) for name, column in bodies.columns.items()}
    assert kinds == {"t": "bool", "n": "int64", "d": "double", "s": "string", "o": "string",
                     "l": "string"}  # fmt: skip
    assert values(read)["o"] == ['{"a":[1, 2]}']
    assert values(read)["l"] == ["[1]"]


def test_whole_and_other_numbers_met_together_are_double() -> None:
    bodies = JsonBodies({})
    assert values(bodies.fit([b'{"n":1}', b'{"n":2.5}'])) == {"n": [1.0, 2.5]}


def test_a_field_that_is_always_null_gets_no_column_until_it_has_a_value() -> None:
    bodies = JsonBodies({})
    assert bodies.fit([b'{"a":1,"x":null}', b'{"a":2,"x":null}']).places == [0, 1]
    assert list(bodies.columns) == ["a"]
    assert values(bodies.fit([b'{"x":"now"}'])) == {"a": [None], "x": ["now"]}


def test_a_new_field_adds_a_column_and_others_are_null_there() -> None:
    bodies = JsonBodies(columns(a="long"))
    read = bodies.fit([b'{"a":1}', b'{"a":2,"b":"new"}', b"{}"])
    assert values(read) == {"a": [1, 2, None], "b": [None, "new", None]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"not JSON", "malformed"),
        (b'{"a":1} {"a":2}', "trailing characters"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"a":"1"}', "Expected `int`, got `str` - at `$.a`"),
        (b'{"a":1.5}', "Expected `int`, got `float` - at `$.a`"),
        (b'{"a":9223372036854775808}', "Expected `int` <= 9223372036854775807"),
        (b'{"new":9223372036854775808}', "outside of 64 bits"),
        (b'{"s":"\xff"}', "invalid start byte"),
        (b'{"s":"\\ud800"}', "truncated"),
        (b'{"j":["\xff"]}', "invalid start byte"),
        (b'{"_time":1}', "field _time has the name of a column of the message"),
        (b'{"A":1}', "field A differs from another one in upper and lower case"),
        (b'{"new":1,"NEW":2}', "differs from another one in upper and lower case"),
        (b'{"_TIME":1}', "field _TIME has the name of a column of the message"),
        (b'{"By_Time":1}', "field By_Time has the name of a column of the message"),
        (b'{"":1}', "a field's name is empty"),
        (b'{"a\\"b":1}', "has a quotation mark or a backslash in its name"),
        (b'{"a\\\\b":1}', "has a quotation mark or a backslash in its name"),
        (b'{"at":"2024-01-01T00:00:00"}', "with a timezone component"),
        (b'{"m":"1234.5"}', "at `$.m`"),
    ],
)
def test_a_body_that_does_not_fit_is_named_with_the_reason(body: bytes, reason: str) -> None:
    known = columns(a="long", s="string", j="json", at="timestamp", m="decimal(4,2)")
    bodies = JsonBodies(known)
    read = bodies.fit([b'{"a":1}', body, b'{"a":3}'])
    assert read.places == [0, 2]
    assert values(read)["a"] == [1, 3]
    assert reason in read.reasons[1]
    assert bodies.columns == known


def test_a_column_of_another_program_with_a_name_that_no_field_has_stays_empty() -> None:
    read = JsonBodies(columns(**{"a": "long", 'b"': "long"})).fit([b'{"a":1}', b'{"b\\"":1}'])
    assert values(read) == {"a": [1]}
    assert "quotation mark" in read.reasons[1]


def test_what_does_not_fit_adds_no_column() -> None:
    bodies = JsonBodies(columns(a="long"))
    bodies.fit([b'{"a":"wrong","new":1}'])
    assert list(bodies.columns) == ["a"]


def test_fields_without_a_column_are_rejected_or_left_out_as_asked() -> None:
    strict = JsonBodies(columns(a="long"), "reject").fit([b'{"a":1,"b":2}'])
    assert "unknown field `b`" in strict.reasons[0]
    lenient = JsonBodies(columns(a="long"), "ignore").fit([b'{"a":1,"b":2}'])
    assert values(lenient) == {"a": [1]}


def test_columns_have_a_bound() -> None:
    bodies = JsonBodies({}, columns_max=3)
    read = bodies.fit([b'{"a":1,"b":2,"c":3}', b'{"d":4}', b'{"a":5}'])
    assert list(bodies.columns) == ["a", "b", "c"]
    assert read.reasons == {1: "the table would have more than 3 columns"}


def test_given_types_are_decoded() -> None:
    bodies = JsonBodies(
        columns(at="timestamp", day="date", price="decimal(6,2)", tags="list<string>", raw="binary")
    )
    body = (
        b'{"at":"2024-05-01T12:00:00.5+02:00","day":"2024-05-01","price":"12.50",'
        b'"tags":["a",null],"raw":"AAE="}'
    )
    (row,) = pa.table(bodies.fit([body]).columns).to_pylist()
    assert row["at"].isoformat() == "2024-05-01T10:00:00.500000+00:00"
    assert [str(row[name]) for name in ("day", "price")] == ["2024-05-01", "12.50"]
    assert row["tags"] == ["a", None]
    assert row["raw"] == b"\x00\x01"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), JSON) | st.binary(max_size=6)))
def test_each_body_is_a_row_with_its_values_or_has_a_reason(bodies: list[Any]) -> None:
    texts = [b if isinstance(b, bytes) else msgspec.json.encode(b) for b in bodies]
    made = JsonBodies({})
    read = made.fit(texts)
    assert sorted([*read.places, *read.reasons]) == list(range(len(texts)))
    found = values(read)
    for row, at in enumerate(read.places):
        for name, value in msgspec.json.decode(texts[at]).items():
            if name not in made.columns:
                assert value is None
            elif made.columns[name].is_json and value is not None:
                assert msgspec.json.decode(found[name][row]) == value
            else:
                assert found[name][row] == value


@pytest.mark.parametrize("text", ["text", "list<json>", "decimal(39,2)", "decimal(2,3)", "list<>"])
def test_a_type_that_is_invalid_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no column type"):
        column_of(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {"a": "text"}},
        {"columns": {"_time": "long"}},
        {"columns": {"at": "long"}, "time": "at"},
        {"body": "bytes", "columns": {"a": "long"}},
        {"commit_seconds": 0},
        {"compact_files": 1},
        {"late_seconds": -1},
        {"archive": True, "subjects": ("a",)},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TableOptions(**wrong)
