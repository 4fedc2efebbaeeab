"""What a schema registry is: schemas by id, and under each subject its versions.

    RestRegistry("http://registry:8081")       Confluent's REST protocol, which others speak too
    BucketRegistry("schemas", servers=url)     a key-value bucket: no second system is needed

These two say where a registry is; they can be pickled, so that a Spark worker opens one as well:

    async with BucketRegistry("schemas").open() as registry:
        identity = await registry.register("orders", Schema("AVRO", text))

An id stands for one schema for ever, so a schema that was read may be kept.
"""

import base64
import binascii
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from slipstream.schemas.errors import SchemaError

Kind = Literal["AVRO", "JSON", "PROTOBUF"]


class Reference(msgspec.Struct, frozen=True):
    """Another schema that a schema needs: the name it has there, and where it is registered."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True):
    """A schema: JSON text of Avro or JSON Schema; of Protobuf a `FileDescriptorSet` in base64.

    `needs` has the texts of the Avro schemas that it refers to, those first that others need.
    """

    kind: Kind
    text: str
    needs: tuple[str, ...] = ()

    @property
    def descriptors(self) -> bytes:
        """The `FileDescriptorSet` of a Protobuf schema. Raises `SchemaError`."""
        try:
            return base64.b64decode(self.text, validate=True)
        except binascii.Error as error:
            raise SchemaError(
                "a Protobuf schema in a registry is a FileDescriptorSet in base64; protoc "
                "--descriptor_set_out --include_imports makes one"
            ) from error


class Version(msgspec.Struct, frozen=True):
    """One version of a subject's schema."""

    subject: str
    version: int
    id: int
    schema: Schema


class Registry(Protocol):
    """An open registry. All methods raise `SchemaError` and its kinds."""

    async def schema(self, identity: int) -> Schema:
        """The schema of an id."""

    async def latest(self, subject: str) -> Version:
        """The newest version of a subject."""

    async def register(self, subject: str, schema: Schema) -> int:
        """Make it the newest version, if it is compatible; its id. One that is there changes
        nothing."""

    async def check(self, subject: str, schema: Schema) -> None:
        """Raise `IncompatibleSchemaError` if it could not become the newest version."""


class RegistryAddress(Protocol):
    """Where a registry is."""

    def open(self) -> AbstractAsyncContextManager[Registry]:
        """Connect to it."""
