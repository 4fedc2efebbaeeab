"""`slipstream schema`: schemas in a key-value bucket, under subjects with versions."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json, say, table
from slipstream.cli.session import command, jetstream, new_app, wants_json

if TYPE_CHECKING:
    from slipstream.schemas import Schema

app = new_app("Schemas in a key-value bucket.")

_KINDS = {".avsc": "AVRO", ".json": "JSON", ".pb": "PROTOBUF", ".desc": "PROTOBUF"}

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The name of the schemas")]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help=".avsc Avro, .json JSON Schema, .pb what protoc --descriptor_set_out writes",
    ),
]
Bucket = Annotated[str, typer.Option("--bucket", metavar="BUCKET", help="Where they are")]
Kind = Annotated[
    str, typer.Option("--type", help="AVRO, JSON or PROTOBUF, if the file's name does not say")
]


@command(app, "add")
async def add(
    subject: Subject,
    file: File,
    bucket: Bucket = "schemas",
    kind: Kind = "",
    compatibility: Annotated[
        str, typer.Option("--compatibility", help="BACKWARD or NONE; kept for later versions")
    ] = "",
) -> None:
    """Register a schema as the newest version of SUBJECT; makes the bucket if it is not there.

    A version of Avro has to read what the last one has written, unless the rule is NONE.
    """
    from slipstream.schemas import create_bucket

    schema = _read(file, kind)
    if compatibility not in ("", "BACKWARD", "NONE"):
        raise UsageError(f"schema add: --compatibility {compatibility} is not BACKWARD or NONE")
    async with jetstream() as js:
        schemas = await create_bucket(js, bucket)
        identity = await schemas.register(subject, schema, compatibility or None)  # type: ignore[arg-type]
        found, _ = await schemas.subject(subject)
    version = found.versions.index(identity) + 1
    if wants_json():
        print_json({"subject": subject, "version": version, "id": identity})
    else:
        say(f"Version {version} of {subject} has id {identity}")


@command(app, "check")
async def check(subject: Subject, file: File, bucket: Bucket = "schemas", kind: Kind = "") -> None:
    """Say whether a schema could become the newest version of SUBJECT. Nothing is changed."""
    from slipstream.schemas import open_bucket

    schema = _read(file, kind)
    async with jetstream() as js:
        await (await open_bucket(js, bucket)).check(subject, schema)
    if wants_json():
        print_json({"subject": subject, "is_compatible": True})
    else:
        say(f"It can become the newest version of {subject}")


@command(app, "get")
async def get(
    subject: Subject,
    version: Annotated[int, typer.Option("--version", help="Not the newest, but this")] = 0,
    bucket: Bucket = "schemas",
) -> None:
    """Print a schema: its text; of Protobuf the descriptors in base64."""
    from slipstream.schemas import SchemaNotFoundError, open_bucket

    async with jetstream() as js:
        schemas = await open_bucket(js, bucket)
        newest = await schemas.latest(subject)
        found, _ = await schemas.subject(subject)
        number = version or newest.version
        if not 0 < number <= newest.version:
            raise SchemaNotFoundError(
                f"subject {subject} has versions 1 to {newest.version}, not {version}"
            )
        identity = found.versions[number - 1]
        schema = await schemas.schema(identity)
    if wants_json():
        about = {"subject": subject, "version": number, "id": identity}
        print_json({**about, "type": schema.kind, "schema": schema.text})
    else:
        say(schema.text)


@command(app, "ls")
async def ls(bucket: Bucket = "schemas") -> None:
    """List the subjects, with how many versions each has."""
    from slipstream.schemas import open_bucket

    async with jetstream() as js:
        schemas = await open_bucket(js, bucket)
        rows = []
        for subject in await schemas.subjects():
            found, _ = await schemas.subject(subject)
            newest = await schemas.latest(subject)
            rows.append((subject, newest, found.compatibility))
    if wants_json():
        print_json(
            [
                {
                    "subject": subject,
                    "type": newest.schema.kind,
                    "version": newest.version,
                    "id": newest.id,
                    "compatibility": rule,
                }
                for subject, newest, rule in rows
            ]
        )
        return
    columns = ("Subject", "Type", "Versions", "Id of the Newest", "Compatibility")
    lines = [(s, v.schema.kind, str(v.version), str(v.id), rule) for s, v, rule in rows]
    if lines:
        table(f"Schemas in Bucket {bucket}", columns, lines)
    else:
        say(f"No schemas found in bucket {bucket}")


def _read(file: Path, kind: str) -> "Schema":
    """The schema in a file. Raises `UsageError` for a file that cannot be read as one."""
    from slipstream.schemas import Schema

    meant = kind.upper() or _KINDS.get(file.suffix, "")
    if meant not in _KINDS.values():
        raise UsageError(f"schema {file}: say with --type whether it is AVRO, JSON or PROTOBUF")
    try:
        data = file.read_bytes()
        text = base64.b64encode(data).decode() if meant == "PROTOBUF" else data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"schema {file} cannot be read: {error}") from error
    return Schema(meant, text)  # type: ignore[arg-type]
