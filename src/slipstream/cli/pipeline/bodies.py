"""What bodies are, as the line says it: a format, and where its schema is."""

from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cli.global_options import UsageError
from slipstream.cli.session import DEFAULT_SERVER, server_urls, settings

if TYPE_CHECKING:
    from slipstream.schemas import Body, CloudEvents, RegistryAddress

PLAIN = ("json", "bytes")
WITH_SCHEMA = ("avro", "protobuf", "messagepack", "cloudevents")


def form_of(
    body: str, subject: str, file: Path | None, registry: str
) -> "Body | CloudEvents | None":
    """The format with its schema; None for bodies that need none.

    Raises `UsageError` if what is given does not belong together.
    """
    if subject and file is not None:
        raise UsageError("pipeline table: give --schema or --schema-file, not both")
    has_schema = bool(subject) or file is not None
    if body == "cloudevents":
        from slipstream.schemas import CloudEvents, Json

        return CloudEvents(_of(Json, subject, file, registry) if has_schema else None)
    if body in PLAIN and not has_schema:
        return None
    if body == "bytes":
        raise UsageError("pipeline table: --body bytes takes no schema")
    if not has_schema:
        raise UsageError(
            f"pipeline table: --body {body} needs --schema, a subject in the registry, or "
            "--schema-file"
        )
    from slipstream.schemas import Avro, Json, MessagePack, Protobuf

    kinds: dict[str, type[Body]] = {
        "json": Json,
        "avro": Avro,
        "protobuf": Protobuf,
        "messagepack": MessagePack,
    }
    return _of(kinds[body], subject, file, registry)


def _of(kind: "type[Body]", subject: str, file: Path | None, registry: str) -> "Body":
    from slipstream.schemas import Protobuf

    if file is None:
        return kind(registry=_registry(registry), subject=subject)
    try:
        content = file.read_bytes()
        if issubclass(kind, Protobuf):
            return Protobuf(descriptors=content)
        return kind(schema=content.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"pipeline table: --schema-file {file}: {error}") from error


def _registry(where: str) -> "RegistryAddress":
    """The registry at a URL, or in a bucket of the server that the command talks to."""
    from slipstream.schemas import BucketRegistry, RestRegistry

    if where.startswith(("http://", "https://")):
        return RestRegistry(where)
    asked = settings()
    servers = ",".join(server_urls(asked.server or DEFAULT_SERVER))
    return BucketRegistry(where, servers, asked.js_domain, asked.connect_options())
