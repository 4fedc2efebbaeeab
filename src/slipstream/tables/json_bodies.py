"""JSON bodies as columns: what fits becomes rows, and what does not is named with the reason.

Each body is decoded by itself into a struct with one field for each column, so a body that is not
exactly one JSON object with values of the right types is found, and costs no other row. Columns of
plain types are then made by Arrow's JSON reader from all bodies that have fitted, which takes a
fraction of the time that going through Python objects takes; the others, and all of them if that
reader disagrees, are made from the structs.

A field without a column is looked at in a second pass, over those bodies alone. Its type comes from
the first values: true and false are boolean, whole numbers long, other numbers double, text string;
objects and lists stay JSON text. Whole and other numbers that are met together are double. A field
that is always null gets no column.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.json

from slipstream.schemas.plain import decoded_type, or_null, reason_of
from slipstream.tables.bodies import Fitting
from slipstream.tables.options import RESERVED, Column

_READ_BLOCK_BYTES = 4 * 1024 * 1024
_NAME_LENGTH_MAX = 200
_LEARN_ROWS = 10_000  # are looked at together for the types of new columns
_INT64 = range(-(2**63), 2**63)
_NOT_DECODED = (msgspec.MsgspecError, ValueError, RecursionError)
_PLAIN = (pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string())

_LONG = Column(pa.int64())
_DOUBLE = Column(pa.float64())
_BY_FIRST_BYTE = {
    ord('"'): Column(pa.string()),
    ord("t"): Column(pa.bool_()),
    ord("f"): Column(pa.bool_()),
    ord("{"): Column(pa.string(), is_json=True),
    ord("["): Column(pa.string(), is_json=True),
}


class JsonBodies:
    """Bodies of JSON as columns; `columns` grows as fields are met, if `new_fields` is "add"."""

    needs_headers = False

    def __init__(
        self,
        columns: Mapping[str, Column],
        new_fields: Literal["add", "reject", "ignore"] = "add",
        columns_max: int = 1000,
    ) -> None:
        self.columns = {name: columns[name] for name in columns if _is_decodable(name)}
        self._new_fields = new_fields
        self._columns_max = columns_max
        self._null_only: set[str] = set()
        self._make_decoders()

    def close(self) -> None:
        """Nothing is open."""

    def read(self, messages: pa.Table) -> Fitting:
        """The columns of the messages' bodies."""
        return self.fit(messages["data"].to_pylist())

    def fit(self, bodies: Sequence[bytes]) -> Fitting:
        """The columns of these bodies."""
        rows: list[object] = [None] * len(bodies)
        reasons: dict[int, str] = {}
        doubtful = self._decode(bodies, range(len(bodies)), rows)
        while doubtful and self._new_fields == "add":
            learned_from = list(doubtful)[:_LEARN_ROWS]
            reasons |= self._learn(bodies, learned_from)
            doubtful = self._decode(bodies, [at for at in doubtful if at not in reasons], rows)
            reasons |= {at: doubtful.pop(at) for at in learned_from if at in doubtful}
        reasons |= doubtful
        places = list(range(len(bodies)))
        while True:
            places = [at for at in places if at not in reasons]
            kept = [rows[at] for at in places]
            made, misfits = self._arrays([bodies[at] for at in places], kept)
            if not misfits:
                return Fitting(made, places, reasons)
            reasons |= {places[at]: reason for at, reason in misfits.items()}

    # -- bodies to structs ---------------------------------------------------------------------

    def _make_decoders(self) -> None:
        """A decoder for the columns that are known, and one that minds no further fields."""
        self._fields = {name: f"f{number}" for number, name in enumerate(self.columns)}
        fields: list[tuple[str, object, object]] = [
            (self._fields[name], _decoded_type(column), None)
            for name, column in self.columns.items()
        ]
        renamed = {field: name for name, field in self._fields.items()}
        lenient = msgspec.defstruct("Body", fields, rename=renamed, gc=False)
        self._lenient = msgspec.json.Decoder(lenient)
        for number, name in enumerate(self._null_only):
            fields.append((f"n{number}", type(None), None))
            renamed[f"n{number}"] = name
        strict = msgspec.defstruct(
            "Body", fields, rename=renamed, gc=False, forbid_unknown_fields=True
        )
        self._decoder = self._lenient
        if self._new_fields != "ignore":
            self._decoder = msgspec.json.Decoder(strict)

    def _decode(
        self, bodies: Sequence[bytes], places: Iterable[int], rows: list[object]
    ) -> dict[int, str]:
        """Fill in `rows`; the places that do not fit, with the reason."""
        decode = self._decoder.decode
        wrong: dict[int, str] = {}
        for at in places:
            try:
                rows[at] = decode(bodies[at])
            except _NOT_DECODED as error:
                wrong[at] = reason_of(error)
        return wrong

    def _learn(self, bodies: Sequence[bytes], doubtful: list[int]) -> dict[int, str]:
        """Add columns for fields that have none; the places that fit no columns, with the reason.

        A body that does not fit for another reason adds nothing.
        """
        reasons: dict[int, str] = {}
        found: dict[str, Column | None] = {}
        known = {name.casefold(): name for name in (*self.columns, *self._null_only)}
        decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        for at in doubtful:
            try:
                self._lenient.decode(bodies[at])
                fields = decoder.decode(bodies[at])
                added = {
                    name: _inferred(bytes(value).strip())
                    for name, value in fields.items()
                    if name not in self.columns
                }
                known |= self._names_of(added, known)
            except _NOT_DECODED as error:
                reasons[at] = reason_of(error)
                continue
            for name, column in added.items():
                found[name] = _together(found.get(name), column)
        if not found:
            return reasons
        self.columns |= {name: column for name, column in found.items() if column is not None}
        self._null_only = (self._null_only | found.keys()) - self.columns.keys()
        self._make_decoders()
        return reasons

    def _names_of(self, added: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
        """The names of further fields by their casefolded form; ValueError if one is no column's.

        Names that differ in case alone would be one column to Spark and DuckDB.
        """
        names: dict[str, str] = {}
        for name in added:
            folded = name.casefold()
            if folded in RESERVED:
                raise ValueError(f"field {name} has the name of a column of the message itself")
            if not 0 < len(name) <= _NAME_LENGTH_MAX or not name.isprintable():
                raise ValueError("a field's name is empty, too long or not printable")
            if not _is_decodable(name):
                raise ValueError(f"field {name} has a quotation mark or a backslash in its name")
            if known.get(folded, name) != name or folded in names:
                raise ValueError(f"field {name} differs from another one in upper and lower case")
            names[folded] = name
        if len(known.keys() | names.keys()) > max(self._columns_max, len(known)):
            raise ValueError(f"the table would have more than {self._columns_max} columns")
        return names

    # -- structs to arrays ---------------------------------------------------------------------

    def _arrays(
        self, bodies: list[bytes], rows: list[object]
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """The columns of rows that were decoded; and rows with values that no column can hold."""
        plain = {
            name: column.type
            for name, column in self.columns.items()
            if column.type in _PLAIN and not column.is_json
        }
        read = _read_plain(bodies, plain)
        made: dict[str, pa.Array] = {}
        misfits: dict[int, str] = {}
        for name, column in self.columns.items():
            if name in read:
                made[name] = read[name]
                continue
            field = self._fields[name]
            # rows that were decoded before the column was met have no such field
            values = [getattr(row, field, None) for row in rows]
            try:
                made[name] = _array(values, column)
            except (pa.ArrowException, *_NOT_DECODED):
                misfits |= _misfits(name, values, column)
        return made, misfits


def _is_decodable(name: str) -> bool:
    """Whether msgspec reads fields of this name."""
    return not any(letter in '"\\' or letter < " " for letter in name)


def _read_plain(bodies: list[bytes], plain: dict[str, pa.DataType]) -> dict[str, pa.ChunkedArray]:
    """Columns of plain types by Arrow's JSON reader; none if it reads other rows than we have.

    Every body is known to be one JSON object, so that lines and objects go together.
    """
    if not bodies or not plain:
        return {}
    text = b"\n".join(bodies)
    block = max(_READ_BLOCK_BYTES, 2 * max(map(len, bodies)))
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            pyarrow.json.ReadOptions(block_size=min(block, 2**31 - 1)),
            pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(plain.items())),
                newlines_in_values=text.count(b"\n") != len(bodies) - 1,
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowException:
        return {}
    if table.num_rows != len(bodies):
        return {}
    return {name: table.column(name) for name in plain}


def _array(values: list[object], column: Column) -> pa.Array:
    """An array of decoded values; raises for a value that the type cannot hold."""
    if column.is_json:
        return pa.array([_json_text(value) for value in values], column.type)
    return pa.array(values, column.type)


def _misfits(name: str, values: list[object], column: Column) -> dict[int, str]:
    """Which of the values the type of their column cannot hold, and why."""
    found: dict[int, str] = {}
    for at, value in enumerate(values):
        try:
            _array([value], column)
        except (pa.ArrowException, *_NOT_DECODED) as error:
            found[at] = f"{reason_of(error)} - at `$.{name}`"
    if not found:
        raise ValueError(f"the values of field {name} cannot be put into one column together")
    return found


def _json_text(value: object) -> str | None:
    """A value that was kept as JSON, as text; null is none."""
    text = bytes(value).strip() if isinstance(value, msgspec.Raw) else b"null"
    return None if text == b"null" else text.decode()


def _inferred(value: bytes) -> Column | None:
    """The column for a field with this value; None for null. Raises ValueError for a number that
    no column takes."""
    first = value[0]
    if first in _BY_FIRST_BYTE:
        return _BY_FIRST_BYTE[first]
    if first == ord("n"):
        return None
    if any(letter in value for letter in b".eE"):
        return _DOUBLE
    if len(value) > 20 or int(value) not in _INT64:
        raise ValueError("a whole number is outside of 64 bits")
    return _LONG


def _together(one: Column | None, other: Column | None) -> Column | None:
    """The column for the values of both; where there is none, that of the first."""
    if one is None or other is None:
        return one or other
    if {one, other} == {_LONG, _DOUBLE}:
        return _DOUBLE
    return one


def _decoded_type(column: Column) -> object:
    """What msgspec decodes a field of this column to."""
    if column.is_json:
        return msgspec.Raw
    return or_null(decoded_type(column.type))
