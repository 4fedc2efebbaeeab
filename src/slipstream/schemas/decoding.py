"""A batch of bodies as a column, those that cannot be read with the reason.

Each body is read by itself, so one that is damaged costs no other row. Schemas that a batch needs
are asked for before its bodies are read, each once in the life of a decoder.
"""

import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec
import pyarrow as pa

import slipstream.schemas.framing as framing
from slipstream.errors import ConfigError
from slipstream.schemas.errors import SchemaError, SchemaNotFoundError
from slipstream.schemas.formats import Body, Read, Write
from slipstream.schemas.registry import Registry

_OBJECT = re.compile(r"<[\w.]+ object at \w+>")
_MISSING_MAX = 1000  # ids that the registry lacks, asked for by one decoder
NO_BODY = "there is no payload"


class Decoded(msgspec.Struct):
    """What has come of some bodies: `values`, null where `reasons` says why there is none."""

    values: pa.Array
    reasons: pa.Array


class Decoder:
    """Reads bodies of one pinned format; opens its registry when a body needs it, until closed."""

    def __init__(self, form: Body) -> None:
        self._form = form
        self._opened = AsyncExitStack()
        self._registry: Registry | None = None
        self._raw_type = form.arrow_type()
        self.type = in_microseconds(self._raw_type)
        self._width = framing.id_bytes(form.framing) if form.registry is not None else 0
        self._own = form.reader(None)
        self._readers: dict[int, Read | str] = {}
        self._missing = 0
        newest = form.newest
        if newest is not None and form.needs_writers:
            self._readers[newest.id] = form.reader(newest.schema)

    async def decode(self, bodies: Sequence[bytes | None]) -> Decoded:
        """The values of the bodies. Raises `RegistryError` if the registry does not answer."""
        if self._form.needs_writers:
            await self._learn(bodies)
        values: list[object] = []
        reasons: list[str | None] = []
        for body in bodies:
            value = reason = None
            if body is None:
                reason = NO_BODY
            else:
                try:
                    value = self._read(body)
                except Exception as error:  # what others' readers raise for bytes of anybody
                    reason = _reason(error)
            values.append(value)
            reasons.append(reason)
        array = _array(values, reasons, self._raw_type, self.type)
        return Decoded(array, pa.array(reasons, pa.string()))

    async def close(self) -> None:
        """Close the registry, if it was opened."""
        await self._opened.aclose()
        self._registry = None

    def _read(self, body: bytes) -> object:
        if not self._width:
            return self._own(body)
        identity = framing.schema_id(body, self._width)
        read = self._readers.get(identity) if self._form.needs_writers else self._own
        if read is None:
            raise SchemaError(
                f"the registry was not asked for schema {identity}: it lacks {_MISSING_MAX} others"
            )
        if isinstance(read, str):
            raise SchemaError(read)
        return read(body[1 + self._width :])

    async def _learn(self, bodies: Sequence[bytes | None]) -> None:
        """Ask for the schemas of these bodies that are not known."""
        width = self._width
        framed = [body for body in bodies if body and len(body) > width and not body[0]]
        for identity in sorted({framing.schema_id(body, width) for body in framed}):
            if identity not in self._readers and self._missing < _MISSING_MAX:
                self._readers[identity] = await self._reader_of(identity)

    async def _reader_of(self, identity: int) -> Read | str:
        """What reads the bodies with this id, or why nothing does."""
        if self._registry is None:
            assert self._form.registry is not None
            self._registry = await self._opened.enter_async_context(self._form.registry.open())
        try:
            schema = await self._registry.schema(identity)
        except SchemaNotFoundError:
            self._missing += 1
            return f"the registry has no schema {identity}"
        except SchemaError as error:
            if type(error) is not SchemaError:
                raise  # the registry does not answer: the bodies are not to blame
            return f"schema {identity}: {error}"
        try:
            return self._form.reader(schema)
        except Exception as error:  # what others' parsers raise for a schema of anybody
            return f"schema {identity}: {_reason(error)}"


async def registered(form: Body) -> tuple[Body, int | None]:
    """A format as a writer wants it, and the id of its schema; None without a registry.

    A schema that was given is registered under the subject, else the newest one is taken. Raises
    `IncompatibleSchemaError` and other kinds of `SchemaError`.
    """
    if form.registry is None:
        return form, None
    if form.newest is None and form.has_schema and form.subject:
        async with form.registry.open() as registry:
            return form, await registry.register(form.subject, form.to_register())
    pinned = await form.pinned()
    if pinned.newest is None:
        raise ConfigError(f"{type(form).__name__}: with a registry, a writer needs a subject")
    return pinned, pinned.newest.id


def encoder(form: Body, identity: int | None) -> Write:
    """What writes a value as a body, with the id of its schema in front if there is one."""
    write = form.writer()
    if identity is None:
        return write
    prefix = framing.prefix(identity, form.framing)
    return lambda value: prefix + write(value)


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with all times in microseconds, as Spark and Iceberg have them."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_struct(kind):
        return pa.struct([_field_in_microseconds(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(kind.key_type, _field_in_microseconds(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_field_in_microseconds(kind.value_field))
    return kind


def _field_in_microseconds(field: pa.Field) -> pa.Field:
    return field.with_type(in_microseconds(field.type)).remove_metadata()


def _array(
    values: list[object], reasons: list[str | None], kind: pa.DataType, wanted: pa.DataType
) -> pa.Array:
    """An array of the values; those that a type cannot hold become null, with a reason."""
    try:
        return pa.array(values, kind).cast(wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    for at, value in enumerate(values):
        try:
            pa.array([value], kind).cast(wanted)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            values[at], reasons[at] = None, _reason(error)
    return pa.array(values, kind).cast(wanted)


def _reason(error: Exception) -> str:
    """Why a body could not be read, in one line."""
    text = " ".join(_OBJECT.sub("the body", str(error)).split())
    if isinstance(error, SchemaError):
        return text
    return f"it cannot be read: {text or type(error).__name__}"
