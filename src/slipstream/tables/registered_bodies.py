"""Bodies in Avro, Protobuf, MessagePack or JSON as columns, which a schema or its registry names.

The columns are those of the newest version in the registry. A body whose schema was not met yet
may be of a version that is newer than that: then the registry is asked again, and what that version
has besides becomes columns of the table. A column that is there keeps its type; values that do not
fit it, as when text has become a number, make a rejected row.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

import slipstream.schemas.framing as framing
from slipstream.errors import ConfigError
from slipstream.schemas import Body, CloudEvents, Decoded, Decoder, EventDecoder
from slipstream.tables.bodies import Fitting
from slipstream.tables.layout import plain
from slipstream.tables.options import RESERVED, Column

Form = Body | CloudEvents


class RegisteredBodies:
    """Reads bodies of a format. Has a thread of its own, in which the registry's connection lives.

    Raises `SchemaError` if there is no schema or the registry does not answer, `ConfigError` if
    the schema has fields that cannot be columns.
    """

    def __init__(self, form: Form, columns: dict[str, Column]) -> None:
        self.columns = dict(columns)
        self.needs_headers = isinstance(form, CloudEvents)
        self._form = form
        self._met: set[int] = set()
        self._was_away = False  # the registry, when bodies were last read
        self._decoder: Decoder | EventDecoder
        self._thread = ThreadPoolExecutor(1, "schemas")
        self._runner = asyncio.Runner()
        self._pinned: Form = form
        try:
            self._thread.submit(self._pin).result()
        except BaseException:
            self.close()
            raise

    def read(self, messages: pa.Table) -> Fitting:
        """The columns of the messages' bodies. If the registry was away they may be read again."""
        return self._thread.submit(self._read, messages).result()

    def close(self) -> None:
        """Close the registry's connection and the thread."""
        self._thread.submit(self._end).result()
        self._thread.shutdown()

    # -- in the thread -------------------------------------------------------------------------

    def _pin(self) -> None:
        """Take the newest schema, and the columns that it has."""
        pinned = self._runner.run(_pinned(self._form))
        decoder = EventDecoder(pinned) if isinstance(pinned, CloudEvents) else Decoder(pinned)
        if not pa.types.is_struct(decoder.type):
            raise ConfigError(
                f"a table needs a schema whose values have fields, and this one is {decoder.type}; "
                'body "bytes" keeps such values as they are'
            )
        columns = {field.name: Column(plain(field.type)) for field in decoder.type}
        _check_names(columns, self.columns)
        self._pinned, self._decoder = pinned, decoder
        self.columns = columns | self.columns

    def _end(self) -> None:
        if hasattr(self, "_decoder"):
            self._runner.run(self._decoder.close())
        self._runner.close()

    def _read(self, messages: pa.Table) -> Fitting:
        bodies = messages["data"].to_pylist()
        headers = None
        if self.needs_headers:
            headers = messages["headers"].to_pylist(maps_as_pydicts="strict")
        is_again, self._was_away = self._was_away, True
        if self._meets_new(bodies) or is_again:
            self._runner.run(self._decoder.close())
            self._pin()
        found = self._runner.run(_decoded(self._decoder, bodies, headers))
        self._was_away = False
        reasons = {at: why for at, why in enumerate(found.reasons.to_pylist()) if why is not None}
        fields = dict(zip(found.values.type.names, found.values.flatten(), strict=True))
        return _fitting(fields, self.columns, len(bodies), reasons)

    def _meets_new(self, bodies: Sequence[bytes | None]) -> bool:
        """Whether a body has a schema that was not met, which may be newer than ours."""
        form, pinned = _body_of(self._form), _body_of(self._pinned)
        if form is None or pinned is None or form.registry is None or form.has_schema:
            return False
        width = framing.id_bytes(form.framing)
        framed = (body for body in bodies if body and len(body) > width and not body[0])
        new = {framing.schema_id(body, width) for body in framed} - self._met
        self._met |= new
        return bool(new - {pinned.newest.id if pinned.newest is not None else 0})


def _body_of(form: Form) -> Body | None:
    """The format of bodies, or of the data of events; None where that is bytes."""
    return form.data if isinstance(form, CloudEvents) else form


async def _pinned(form: Form) -> Form:
    return await form.pinned()


async def _decoded(
    decoder: Decoder | EventDecoder,
    bodies: Sequence[bytes | None],
    headers: Sequence[dict[str, list[str]] | None] | None,
) -> Decoded:
    if isinstance(decoder, Decoder):
        return await decoder.decode(bodies)
    assert headers is not None
    return await decoder.decode(bodies, headers)


def _check_names(columns: dict[str, Column], known: dict[str, Column]) -> None:
    """Raise `ConfigError` for fields that cannot be columns, or are others' in another case."""
    taken = {name.casefold(): name for name in known}
    for name in columns:
        if name.casefold() in RESERVED:
            raise ConfigError(f"the schema's field {name} has the name of a column of the message")
        if taken.setdefault(name.casefold(), name) != name:
            raise ConfigError(
                f"the schema's field {name} differs from column {taken[name.casefold()]} in upper "
                "and lower case alone, which are one column to Spark and DuckDB"
            )


def _fitting(
    fields: dict[str, pa.Array], columns: dict[str, Column], rows: int, reasons: dict[int, str]
) -> Fitting:
    """The columns in their own types; rows with values that do not fit these are left out."""
    made: dict[str, pa.Array] = {}
    for name, column in columns.items():
        if name not in fields:
            made[name] = pa.nulls(rows, column.type)
            continue
        for at, path in _without_place(fields[name], column.type, f"$.{name}").items():
            reasons.setdefault(at, f"column {name} has no place for it - at `{path}`")
        try:
            made[name] = fields[name].cast(column.type)
        except pa.ArrowException:
            made[name], misfits = _cast_one_by_one(name, fields[name], column)
            reasons = misfits | reasons
    places = [at for at in range(rows) if at not in reasons]
    if reasons:
        taken = pa.array(places, pa.int64())
        made = {name: values.take(taken) for name, values in made.items()}
    return Fitting(made, places, reasons)


def _without_place(values: pa.Array, kind: pa.DataType, path: str) -> dict[int, str]:
    """The rows with values in nested fields that the column lacks, and which field; a cast would
    leave these out."""
    types, have = pa.types, values.type
    if have == kind:
        return {}
    if types.is_struct(have) and types.is_struct(kind):
        found: dict[int, str] = {}
        for field, inner in zip(have, values.flatten(), strict=True):
            here = f"{path}.{field.name}"
            if kind.get_field_index(field.name) < 0:
                found |= dict.fromkeys(pc.indices_nonzero(inner.is_valid()).to_pylist(), here)
            else:
                found |= _without_place(inner, kind.field(field.name).type, here)
        return found
    if types.is_map(have) and types.is_map(kind):
        have, kind = (pa.list_(pa.struct([t.key_field, t.item_field])) for t in (have, kind))
        return _without_place(values.cast(have), kind, path)
    if types.is_list(have) and types.is_list(kind):
        inside = _without_place(values.flatten(), kind.value_type, path)
        rows = pc.list_parent_indices(values).to_pylist()
        return {rows[at]: where for at, where in inside.items()}
    return {}


def _cast_one_by_one(
    name: str, values: pa.Array, column: Column
) -> tuple[pa.Array, dict[int, str]]:
    """The values in the column's type, null where they have none; and why they have none."""
    parts: list[pa.Array] = []
    misfits: dict[int, str] = {}
    for at in range(len(values)):
        one = values.slice(at, 1)
        try:
            parts.append(one.cast(column.type))
        except pa.ArrowException as error:
            misfits[at] = f"{' '.join(str(error).split())} - at `$.{name}`"
            parts.append(pa.nulls(1, column.type))
    return pa.concat_arrays(parts), misfits
