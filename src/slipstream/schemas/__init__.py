"""Schemas: what is in a body, where that is registered, and how bodies become columns.

    form = Avro(registry=BucketRegistry("schemas", servers=url), subject="orders")

`slipstream.spark.formats` reads and writes DataFrames with a format; `slipstream schema` registers
schemas. Needs the extra `schemas`: pip install 'slipstream[schemas]'.
"""

from slipstream.extras import require

require("pyarrow", extra="schemas")  # before the modules that cannot be imported without

from slipstream.schemas.bucket_registry import (  # noqa: E402
    BucketRegistry,
    SchemaBucket,
    create_bucket,
    open_bucket,
)
from slipstream.schemas.cloud_events import CloudEvents, EventDecoder  # noqa: E402
from slipstream.schemas.decoding import Decoded, Decoder, encoder, registered  # noqa: E402
from slipstream.schemas.errors import (  # noqa: E402
    IncompatibleSchemaError,
    RegistryError,
    SchemaError,
    SchemaNotFoundError,
)
from slipstream.schemas.formats import (  # noqa: E402
    Avro,
    Body,
    Json,
    MessagePack,
    Protobuf,
    json_schema_of,
)
from slipstream.schemas.registry import (  # noqa: E402
    Registry,
    RegistryAddress,
    Schema,
    Version,
)
from slipstream.schemas.rest_registry import RestRegistry  # noqa: E402

__all__ = [
    "Avro",
    "Body",
    "BucketRegistry",
    "CloudEvents",
    "Decoded",
    "Decoder",
    "EventDecoder",
    "IncompatibleSchemaError",
    "Json",
    "MessagePack",
    "Protobuf",
    "Registry",
    "RegistryAddress",
    "RegistryError",
    "RestRegistry",
    "Schema",
    "SchemaBucket",
    "SchemaError",
    "SchemaNotFoundError",
    "Version",
    "create_bucket",
    "encoder",
    "json_schema_of",
    "open_bucket",
    "registered",
]
