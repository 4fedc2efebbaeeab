"""What bodies are written in, and how a batch of them becomes a column.

    Avro(registry=RestRegistry(url), subject="orders-value")  framed, old versions resolved
    Avro(schema=text)                                          without a registry
    Protobuf(message="shop.Order", descriptors=bytes)
    Json(schema=text), MessagePack(schema=text)                the text is a JSON Schema
    CloudEvents(Json(schema=text))                             events with such data

A format says what is wanted, and can be pickled. `pinned` asks the registry once for the newest
schema, so that all who read have the same columns: what was written with other versions is resolved
into it. With a registry each body begins with the id of its schema (`framing`).
"""

import base64
import json
from collections.abc import Callable
from typing import ClassVar, Self

import msgspec
import pyarrow as pa

import slipstream.schemas.avro as avro
import slipstream.schemas.framing as framing
import slipstream.schemas.plain as plain
import slipstream.schemas.protobuf as protobuf
from slipstream.errors import ConfigError
from slipstream.schemas.errors import SchemaError
from slipstream.schemas.framing import Framing
from slipstream.schemas.json_schema import arrow_type as arrow_type_of_json_schema
from slipstream.schemas.registry import Kind, RegistryAddress, Schema, Version

Read = Callable[[bytes], object]
Write = Callable[[object], bytes]


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """What formats with a registry have in common."""

    registry: RegistryAddress | None = None
    subject: str = ""
    framing: Framing = "confluent"
    newest: Version | None = None  # set by `pinned`

    def __post_init__(self) -> None:
        framing.id_bytes(self.framing)
        if self.registry is None and self.subject:
            raise ConfigError(f"{type(self).__name__}: subject {self.subject!r} needs a registry")

    @property
    def has_schema(self) -> bool:
        """Whether the reader's schema was given."""
        raise NotImplementedError

    async def pinned(self) -> Self:
        """This format with the subject's newest version, unless the reader's schema was given.

        Raises `SchemaError`.
        """
        if self.registry is None or self.newest is not None or self.has_schema:
            return self
        if not self.subject:
            raise ConfigError(
                f"{type(self).__name__}: give the subject whose newest schema says what the "
                "columns are, or a schema"
            )
        async with self.registry.open() as registry:
            newest = await registry.latest(self.subject)
        return msgspec.structs.replace(self, newest=newest)

    def _text(self, given: str, kind: str) -> str:
        """The reader's schema: the one that was given, or the subject's newest."""
        if given:
            return given
        if self.newest is None:
            raise ConfigError(f"{type(self).__name__}: give a schema, or registry and subject")
        if self.newest.schema.kind != kind:
            raise SchemaError(
                f"subject {self.subject} has schemas of {self.newest.schema.kind}, not of {kind}"
            )
        return self.newest.schema.text


class Textual(Registered, frozen=True, kw_only=True):
    """What formats have in common whose schemas are text. `schema` is the reader's, or empty."""

    kind: ClassVar[Kind]
    schema: str = ""

    @property
    def has_schema(self) -> bool:
        """Whether the reader's schema was given."""
        return bool(self.schema)

    def to_register(self) -> Schema:
        """What a writer registers."""
        return Schema(self.kind, self._text(self.schema, self.kind))


class Avro(Textual, frozen=True, kw_only=True):
    """Avro's binary encoding. `schema` is the reader's, in JSON; the subject's newest if empty."""

    kind = "AVRO"

    def arrow_type(self) -> pa.DataType:
        """The type of the reader's schema."""
        return avro.arrow_type(self._parsed())

    def reader(self, wrote: Schema | None) -> Read:
        """What reads a body that was written with a schema; the reader's own if that is None."""
        wanted = self._parsed()
        if wrote is None:
            return avro.reader(wanted, wanted)
        _check_kind(wrote, self.kind)
        return avro.reader(avro.parse(wrote.text, wrote.needs), wanted)

    def writer(self) -> Write:
        """What writes a value, without what stands in front."""
        return avro.writer(self._parsed())

    @property
    def needs_writers(self) -> bool:
        """Whether a body cannot be read without the schema that it was written with."""
        return self.registry is not None

    def _parsed(self) -> avro.AvroSchema:
        needs = () if self.schema or self.newest is None else self.newest.schema.needs
        return avro.parse(self._text(self.schema, self.kind), needs)


class Protobuf(Registered, frozen=True, kw_only=True):
    """Protobuf. `message` is its full name, the schema's first message if it is empty.

    `descriptors` is what ``protoc --descriptor_set_out --include_imports`` writes; without it they
    come from the registry.
    """

    message: str = ""
    descriptors: bytes = b""

    @property
    def has_schema(self) -> bool:
        """Whether the reader's schema was given."""
        return bool(self.descriptors)

    def arrow_type(self) -> pa.DataType:
        """The type of the message."""
        return protobuf.arrow_type(self._files().message(self.message))

    def reader(self, wrote: Schema | None) -> Read:
        """What reads a body; a framed one has the place of its message in the writer's schema."""
        files = self._files()
        wanted = files.message(self.message)
        read = protobuf.reader(wanted)
        if self.registry is None:
            return read
        if wrote is not None:
            _check_kind(wrote, "PROTOBUF")
            files = protobuf.files_of(wrote.descriptors)

        def read_framed(body: bytes) -> object:
            indexes, at = framing.message_indexes(body, 0)
            name = files.at(indexes).full_name
            if name != wanted.full_name:
                raise SchemaError(f"it is a message {name}, not {wanted.full_name}")
            return read(body[at:])

        return read_framed

    def writer(self) -> Write:
        """What writes a value, with its place if there is a registry."""
        files = self._files()
        message = files.message(self.message)
        write = protobuf.writer(message)
        if self.registry is None:
            return write
        place = framing.message_place(files.place_of(message))
        return lambda value: place + write(value)

    def to_register(self) -> Schema:
        """What a writer registers."""
        return Schema("PROTOBUF", base64.b64encode(self._bytes()).decode())

    @property
    def needs_writers(self) -> bool:
        """Whether the place of the message is one in the writer's schema, not in `descriptors`."""
        return self.registry is not None and not self.descriptors

    def _bytes(self) -> bytes:
        if self.descriptors:
            return self.descriptors
        self._text("", "PROTOBUF")
        assert self.newest is not None
        return self.newest.schema.descriptors

    def _files(self) -> protobuf.Files:
        return protobuf.files_of(self._bytes())


class Json(Textual, frozen=True, kw_only=True):
    """JSON. `schema` is a JSON Schema (`json_schema_of` takes one from a type), or the newest."""

    kind = "JSON"

    def arrow_type(self) -> pa.DataType:
        """The type of what the JSON Schema describes."""
        return arrow_type_of_json_schema(self._text(self.schema, self.kind))

    def reader(self, wrote: Schema | None) -> Read:
        """What reads a body, by the reader's schema alone."""
        return plain.json_reader(self.arrow_type())

    def writer(self) -> Write:
        """What writes a value, without the fields that are null."""
        return lambda value: msgspec.json.encode(_without_nulls(value))

    @property
    def needs_writers(self) -> bool:
        """Never: JSON says its own names."""
        return False


class MessagePack(Json, frozen=True, kw_only=True):
    """MessagePack, with what JSON Schema says of its values."""

    def reader(self, wrote: Schema | None) -> Read:
        """What reads a body, by the reader's schema alone."""
        return plain.msgpack_reader(self.arrow_type())

    def writer(self) -> Write:
        """What writes a value, without the fields that are null."""
        return lambda value: msgspec.msgpack.encode(_without_nulls(value))


Body = Avro | Protobuf | Json | MessagePack
"""The formats of a body by itself."""


def json_schema_of(kind: type) -> str:
    """The JSON Schema of a `msgspec.Struct` or dataclass, for `Json` and `MessagePack`.

    A `datetime` is a time if it is ``Annotated[datetime, msgspec.Meta(tz=True)]``, else text.
    """
    return json.dumps(msgspec.json.schema(kind))


def _check_kind(schema: Schema, kind: str) -> None:
    if schema.kind != kind:
        raise SchemaError(f"it was written with a schema of {schema.kind}, not of {kind}")


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
