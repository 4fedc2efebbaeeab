"""What can go wrong with schemas and their registries.

slipstream.Error
└── SchemaError                    a schema is not valid, or cannot be put into columns
    ├── SchemaNotFoundError        the registry has no such schema or subject
    ├── IncompatibleSchemaError    a new version cannot read what the last one has written
    └── RegistryError              the registry refuses, or does not answer
"""

from slipstream.errors import Error


class SchemaError(Error):
    """A schema is not valid, or has something that columns cannot hold."""


class SchemaNotFoundError(SchemaError):
    """The registry has no schema with that id, or no subject of that name."""


class IncompatibleSchemaError(SchemaError):
    """With the new version of a schema, data of the last version could not be read."""


class RegistryError(SchemaError):
    """The registry refuses what was asked, or does not answer."""
