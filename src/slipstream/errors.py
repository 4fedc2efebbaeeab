"""The tree of errors under `slipstream.Error`.

    Error
    ├── ConfigError            an option, flag, file or stream configuration is wrong
    ├── ProtocolError          bytes on the wire break the NATS protocol
    ├── StorageError           the disk refused or lost something
    │   ├── DiskFullError      no space left; writes come back when space does
    │   └── CorruptionError    damaged data was found where none may be
    └── (client errors: see slipstream.client.errors)

A message says what was asked, what is wrong and what to do.
"""


class Error(Exception):
    """Base of every error that Slipstream raises on purpose."""


class ConfigError(Error, ValueError):
    """A configuration is wrong; nothing was changed."""


class ProtocolError(Error):
    """Bytes that break the NATS protocol."""


class StorageError(Error):
    """The store could not do what was asked."""


class DiskFullError(StorageError):
    """No space is left for the write that was asked; nothing was stored."""


class CorruptionError(StorageError):
    """Stored bytes are damaged beyond what recovery may repair."""
