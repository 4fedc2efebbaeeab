"""Registries that speak Confluent's REST protocol: Confluent's, Karapace, Redpanda, Apicurio.

Apicurio has the protocol beside its own one, at ``/apis/ccompat/v7``.
"""

import asyncio
import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from slipstream.errors import ConfigError
from slipstream.extras import require
from slipstream.schemas.errors import (
    IncompatibleSchemaError,
    RegistryError,
    SchemaError,
    SchemaNotFoundError,
)
from slipstream.schemas.protobuf import is_known
from slipstream.schemas.registry import Kind, Reference, Registry, Schema, Version

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_CONFLICT = 409
_REDIRECT = 3  # the first digit of its statuses
_FAULT = 5  # likewise, of the registry's own
_SERIALIZED = "?format=serialized"  # Protobuf as descriptors, not as source text
_GIVE_DESCRIPTORS = (
    "give the format `descriptors`, as protoc --descriptor_set_out --include_imports writes them"
)
_DEPTH_MAX = 100  # of references to references
_REFERENCES_MAX = 1000  # of one schema, with those of what it refers to
_ANSWER_BYTES_MAX = 1 << 25
_REFUSAL_BYTES_MAX = 1 << 14
_READ_BYTES = 1 << 16


Id = Annotated[int, msgspec.Meta(ge=0)]


class _Schema(msgspec.Struct):
    """A schema in an answer."""

    schema: str
    schema_type: Kind | None = msgspec.field(default=None, name="schemaType")
    references: list[Reference] | None = None


class _Version(_Schema, kw_only=True):
    """The schema of a subject's version."""

    id: Id
    version: int


class _Registered(msgspec.Struct):
    id: Id


class _Compatibility(msgspec.Struct):
    is_compatible: bool
    messages: list[object] | None = None


A = TypeVar("A")


class RestRegistry(msgspec.Struct, frozen=True):
    """Where a registry with Confluent's REST protocol is, and who we are there.

    `user` and `password`, or a bearer `token`; none of the secrets shows in a repr. Times are
    seconds. Raises `ConfigError` for an invalid URL.
    """

    url: str
    user: str = ""
    password: str = ""
    token: str = ""
    timeout: float = 10.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"a schema registry's URL is like http://host:8081, not {self.url!r}")
        if parts.username or parts.password:
            raise ConfigError("a schema registry's user and password are not given in its URL")
        if self.token and self.user:
            raise ConfigError("for a schema registry give user and password, or token, not both")

    def __repr__(self) -> str:
        return f"RestRegistry({self.url!r})"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Registry]:
        """A registry; each request is a connection of its own."""
        yield _Rest(self)


class _Rest:
    """The requests of Confluent's protocol."""

    def __init__(self, address: RestRegistry) -> None:
        self._address = address

    async def schema(self, identity: int) -> Schema:
        """The schema of an id. Raises `SchemaNotFoundError`, `RegistryError`."""
        path = f"schemas/ids/{identity}"
        return await self._whole(await self._get(path), path)

    async def latest(self, subject: str) -> Version:
        """The newest version of a subject. Raises `SchemaNotFoundError`, `RegistryError`."""
        path = f"subjects/{quote(subject, safe='')}/versions/latest"
        found = await self._ask(path, _Version)
        schema = await self._whole(found, path)
        return Version(subject, found.version, found.id, schema)

    async def register(self, subject: str, schema: Schema) -> int:
        """Register it; its id. Raises `IncompatibleSchemaError`, `RegistryError`."""
        path = f"subjects/{quote(subject, safe='')}/versions"
        made = await self._ask(path, _Registered, _as_json(schema))
        return made.id

    async def check(self, subject: str, schema: Schema) -> None:
        """Raise `IncompatibleSchemaError` if it could not become the newest version."""
        path = f"compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        try:
            found = await self._ask(path, _Compatibility, _as_json(schema))
        except SchemaNotFoundError:
            return  # it is the first one
        if not found.is_compatible:
            why = "; ".join(str(one) for one in found.messages or ()) or "no reason given"
            raise IncompatibleSchemaError(f"schema for subject {subject}: {why}")

    # -- how it is asked ---------------------------------------------------------------------------

    async def _whole(self, found: _Schema, path: str) -> Schema:
        """The schema of an answer, with what it refers to."""
        kind = found.schema_type or "AVRO"
        if kind == "PROTOBUF":
            return Schema(kind, base64.b64encode(await self._file_set(path)).decode())
        needs: dict[str, str] = {}
        await self._add_needs(found, needs, set(), 0)
        return Schema(kind, found.schema, tuple(needs.values()))

    async def _add_needs(
        self, found: _Schema, needs: dict[str, str], known: set[str], depth: int
    ) -> None:
        for reference in found.references or ():
            if reference.name in known:
                continue
            known.add(reference.name)
            path = self._path_of(reference, known, depth)
            other = await self._get(path)
            await self._add_needs(other, needs, known, depth + 1)
            needs[reference.name] = other.schema

    async def _file_set(self, path: str) -> bytes:
        """The `FileDescriptorSet` of a Protobuf schema: what it imports, then itself."""
        require("google.protobuf", extra="schemas")
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        files = FileDescriptorSet()
        await self._add_file(path, "", files, set(), 0)
        made: bytes = files.SerializeToString()
        return made

    async def _add_file(
        self, path: str, name: str, files: "FileDescriptorSet", known: set[str], depth: int
    ) -> None:
        from google.protobuf.message import DecodeError

        found = await self._get(path + _SERIALIZED)
        for reference in found.references or ():
            if reference.name not in known:
                known.add(reference.name)
                where = self._path_of(reference, known, depth)
                await self._add_file(where, reference.name, files, known, depth + 1)
        try:
            files.file.add().ParseFromString(base64.b64decode(found.schema, validate=True))
        except (ValueError, DecodeError) as error:
            raise SchemaError(
                f"{self._address!r} answers Protobuf schemas as source text, which nothing here "
                f"compiles; {_GIVE_DESCRIPTORS}"
            ) from error
        if name:
            files.file[-1].name = name  # by which others import it

    def _path_of(self, reference: Reference, known: set[str], depth: int) -> str:
        if depth > _DEPTH_MAX or len(known) > _REFERENCES_MAX:
            raise SchemaError(
                f"schema {reference.name} is one of too many that refer to each other: "
                f"{len(known)}, {depth} of them in a row"
            )
        return f"subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"

    async def _get(self, path: str) -> _Schema:
        return await self._ask(path, _Schema)

    async def _ask(self, path: str, kind: type[A], body: dict[str, str] | None = None) -> A:
        """What a path answers, to GET or to POST of a body."""
        answer = await asyncio.to_thread(self._ask_now, path, body)
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RegistryError(f"{self._address!r} answers {path} otherwise: {error}") from error

    def _ask_now(self, path: str, body: dict[str, str] | None) -> bytes:
        address = self._address
        request = urllib.request.Request(f"{address.url.rstrip('/')}/{path}")
        request.add_header("Accept", _MEDIA_TYPE)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", _MEDIA_TYPE)
        if address.token:
            request.add_header("Authorization", f"Bearer {address.token}")
        elif address.user:
            pair = base64.b64encode(f"{address.user}:{address.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {pair}")
        try:
            with urllib.request.build_opener(_NoRedirects).open(
                request, timeout=address.timeout
            ) as answer:
                return _read(answer, address)
        except urllib.error.HTTPError as error:
            raise _refusal(address, path, error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise RegistryError(f"{address!r} does not answer {path}: {why}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: that would take the password there."""

    def redirect_request(self, *_: object) -> None:
        """No request: the answer is an error."""


def _read(answer: http.client.HTTPResponse, address: RestRegistry) -> bytes:
    """The body of an answer. Raises OSError if it is too long, or takes too long."""
    deadline = time.monotonic() + address.timeout
    found = bytearray()
    while piece := answer.read1(_READ_BYTES):
        found += piece
        if len(found) > _ANSWER_BYTES_MAX:
            raise OSError(f"its answer has more than {_ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError(f"its answer takes longer than {address.timeout:g} s")
    return bytes(found)


def _as_json(schema: Schema) -> dict[str, str]:
    if schema.needs:
        raise SchemaError("a schema that refers to others cannot be registered from here")
    text = schema.text
    if schema.kind == "PROTOBUF":
        text = base64.b64encode(_single_file(schema)).decode()
    kind = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
    return {"schema": text, **kind}


def _single_file(schema: Schema) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found = FileDescriptorSet.FromString(schema.descriptors).file
    files = [file for file in found if not is_known(file.name)]
    if len(files) != 1:
        raise SchemaError("a Protobuf schema that imports others cannot be registered from here")
    made: bytes = files[0].SerializeToString()
    return made


def _refusal(address: RestRegistry, path: str, error: urllib.error.HTTPError) -> SchemaError:
    """What the registry has said, as an error."""
    try:
        text = error.read(_REFUSAL_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        text = ""
    try:
        told = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        told = text[:200] or error.reason
    if error.code // 100 == _REDIRECT:
        told = f"it redirects to {error.headers.get('Location')}, which is not followed; give it"
    if error.code // 100 == _FAULT and path.endswith(_SERIALIZED):
        told = f"it cannot give this Protobuf schema as descriptors: {told}; {_GIVE_DESCRIPTORS}"
    kinds = {_NOT_FOUND: SchemaNotFoundError, _CONFLICT: IncompatibleSchemaError}
    return kinds.get(error.code, RegistryError)(f"{address!r}, {path}: {error.code} {told}")
