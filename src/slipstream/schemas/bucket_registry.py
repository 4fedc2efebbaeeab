"""A key-value bucket as a schema registry: nothing runs but the server that has the streams.

    ids.7              {"kind": "AVRO", "text": "..."}                  written once
    subjects.orders    {"versions": [3, 7], "compatibility": "BACKWARD"}

A new version is one update of the subject's key, which the server grants only to one of two who try
at once. The same schema has the same id under every subject. An id that was made for an update that
never came is taken by the next one who registers that schema.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

import slipstream
import slipstream.schemas.avro as avro
from slipstream.client.kv.config import check_key
from slipstream.client.kv.errors import (
    BucketNotFoundError,
    InvalidKeyError,
    KeyExistsError,
    RevisionMismatchError,
)
from slipstream.client.options import make_options
from slipstream.schemas.errors import RegistryError, SchemaError, SchemaNotFoundError
from slipstream.schemas.registry import Kind, Registry, Schema, Version

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.kv import KeyValue, KeyValueEntry

T = TypeVar("T")
Compatibility = Literal["BACKWARD", "NONE"]

DEFAULT_BUCKET = "schemas"
_ATTEMPTS_MAX = 100


class BucketRegistry(msgspec.Struct, frozen=True):
    """Where a bucket with schemas is: its name, the servers, and options of the connection.

    `options` are those of `slipstream.connect`, and must be picklable where Spark is to use it.
    """

    bucket: str = DEFAULT_BUCKET
    servers: str = "nats://127.0.0.1:4222"
    domain: str = ""
    options: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"BucketRegistry({self.bucket!r})"  # servers and options may have secrets

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Registry]:
        """A connection to the bucket. Raises `RegistryError` if it is not there."""
        options = make_options(**{"name": "schemas", **self.options})
        servers = [part.strip() for part in self.servers.split(",") if part.strip()]
        async with await slipstream.connect(servers, options) as connection:
            js = connection.jetstream(domain=self.domain) if self.domain else connection.jetstream()
            yield await open_bucket(js, self.bucket)


class _Entry(msgspec.Struct):
    kind: Kind
    text: str


class Subject(msgspec.Struct):
    """What a subject has: the ids of its versions, the first one first."""

    versions: list[int] = []
    compatibility: Compatibility = "BACKWARD"


async def open_bucket(js: "JetStream", bucket: str = DEFAULT_BUCKET) -> "SchemaBucket":
    """The registry in a bucket. Raises `RegistryError` if there is no such bucket."""
    try:
        return SchemaBucket(await js.key_value(bucket))
    except BucketNotFoundError as error:
        raise RegistryError(
            f"there is no bucket {bucket} with schemas: `slipstream schema add` makes it"
        ) from error


async def create_bucket(js: "JetStream", bucket: str = DEFAULT_BUCKET) -> "SchemaBucket":
    """The registry in a bucket, which is made if it is not there."""
    try:
        return SchemaBucket(await js.key_value(bucket))
    except BucketNotFoundError:
        return SchemaBucket(await js.create_key_value(bucket, description="Schemas, by id"))


class SchemaBucket:
    """The schemas in a bucket."""

    def __init__(self, bucket: "KeyValue") -> None:
        self._bucket = bucket

    async def schema(self, identity: int) -> Schema:
        """The schema of an id. Raises `SchemaNotFoundError`."""
        entry = await self._bucket.entry(f"ids.{identity}")
        if entry is None or entry.is_deleted:
            raise SchemaNotFoundError(f"bucket {self._bucket.bucket} has no schema {identity}")
        return self._read_schema(entry)

    async def latest(self, subject: str) -> Version:
        """The newest version of a subject. Raises `SchemaNotFoundError`."""
        found, _ = await self.subject(subject)
        if not found.versions:
            raise SchemaNotFoundError(
                f"bucket {self._bucket.bucket} has no schema for subject {subject}"
            )
        identity = found.versions[-1]
        return Version(subject, len(found.versions), identity, await self.schema(identity))

    async def subjects(self) -> list[str]:
        """The names of all subjects, sorted."""
        keys = await self._bucket.keys("subjects.>")
        return [key.removeprefix("subjects.") for key in keys]

    async def subject(self, subject: str) -> tuple[Subject, int]:
        """What is known of a subject, and the revision of its key; empty and 0 if nothing is."""
        entry = await self._bucket.entry(_key_of(subject))
        if entry is None or entry.is_deleted:
            return Subject(), 0 if entry is None else entry.revision
        return self._read(entry, Subject), entry.revision

    async def register(
        self, subject: str, schema: Schema, compatibility: Compatibility | None = None
    ) -> int:
        """Make it the newest version; its id. `compatibility` is kept for later versions, too.

        A schema that is among the versions already changes nothing. Raises
        `IncompatibleSchemaError`, and `SchemaError` for one that is not valid.
        """
        _check_valid(schema)
        for _ in range(_ATTEMPTS_MAX):
            found, revision = await self.subject(subject)
            rule = compatibility or found.compatibility
            known = [await self.schema(identity) for identity in found.versions]
            if schema in known and rule == found.compatibility:
                return found.versions[known.index(schema)]
            if schema not in known:
                if known and rule == "BACKWARD":
                    _check_compatible(subject, known[-1], schema)
                identity = await self._identity_of(schema)
                found.versions.append(identity)
            found.compatibility = rule
            try:
                await self._bucket.update(_key_of(subject), msgspec.json.encode(found), revision)
            except RevisionMismatchError:
                continue  # somebody else has registered a version meanwhile
            return found.versions[-1 if schema not in known else known.index(schema)]
        raise RegistryError(f"subject {subject} changes all the time; nothing was registered")

    async def check(self, subject: str, schema: Schema) -> None:
        """Raise `IncompatibleSchemaError` if it could not become the newest version."""
        _check_valid(schema)
        found, _ = await self.subject(subject)
        if found.versions and found.compatibility == "BACKWARD":
            _check_compatible(subject, await self.schema(found.versions[-1]), schema)

    async def _identity_of(self, schema: Schema) -> int:
        """The id of a schema, a new one if it has none."""
        known: dict[int, Schema] = {}
        async with await self._bucket.watch("ids.*", ignore_deletes=True) as entries:
            async for entry in entries:
                if entry is None:
                    break
                name = entry.key.removeprefix("ids.")
                if name.isdecimal():
                    known[int(name)] = self._read_schema(entry)
        for identity, other in known.items():
            if other == schema:
                return identity
        identity = max(known, default=0)
        for _ in range(_ATTEMPTS_MAX):
            identity += 1
            try:
                entry_of = msgspec.json.encode(_Entry(schema.kind, schema.text))
                await self._bucket.create(f"ids.{identity}", entry_of)
            except KeyExistsError:
                if await self.schema(identity) != schema:
                    continue
            return identity
        raise RegistryError("others register schemas all the time; nothing was registered")

    def _read_schema(self, entry: "KeyValueEntry") -> Schema:
        found = self._read(entry, _Entry)
        return Schema(found.kind, found.text)

    def _read(self, entry: "KeyValueEntry", kind: type[T]) -> T:
        """What a key has. Raises `SchemaError` if somebody has put something else there."""
        try:
            return msgspec.json.decode(entry.data, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise SchemaError(
                f"key {entry.key} of bucket {self._bucket.bucket} is not what a registry writes "
                f"there: {error}"
            ) from error


def _key_of(subject: str) -> str:
    key = f"subjects.{subject}"
    try:
        check_key(key)
    except InvalidKeyError as error:
        raise SchemaError(
            f"subject {subject!r}: in a bucket it has letters, digits and -/_=. only"
        ) from error
    return key


def _check_valid(schema: Schema) -> None:
    """Raise `SchemaError` for a schema that none can be."""
    from slipstream.schemas.json_schema import arrow_type
    from slipstream.schemas.protobuf import files_of

    if schema.needs:
        raise SchemaError("a schema in a bucket is whole: write what it refers to into it")
    if schema.kind == "AVRO":
        avro.parse(schema.text)
    elif schema.kind == "PROTOBUF":
        files_of(schema.descriptors)
    else:
        arrow_type(schema.text)


def _check_compatible(subject: str, old: Schema, new: Schema) -> None:
    if old.kind != new.kind:
        raise SchemaError(f"subject {subject} has schemas of {old.kind}, not of {new.kind}")
    if old.kind == "AVRO":
        avro.check_readable(subject, reader=new.text, writer=old.text)
