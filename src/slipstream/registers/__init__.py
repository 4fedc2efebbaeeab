"""Stores for the register of a group, outside of it.

    bucket     a key in a key-value bucket of a NATS cluster
    objects    an object in S3, Google Cloud Storage or Azure, through `obstore`
    files      a file, for servers of one machine

What a group relies on is in docs/group.md#a-register-outside-of-the-group. The server takes them
for a `RegisterStore`, and finds them by the name of this package, which stands above it and above
the client.
"""

from slipstream.registers.bucket import BucketRegister
from slipstream.registers.files import FileRegister
from slipstream.registers.objects import ObjectRegister, open_object_register
from slipstream.server.cluster_options import RegisterOptions
from slipstream.server.group.outside import RegisterStore

__all__ = ["BucketRegister", "FileRegister", "ObjectRegister", "open_register"]


def open_register(options: RegisterOptions, group: str) -> RegisterStore:
    """Where the options say that the register of a group lies. Nothing is asked of it yet. Raises
    `ConfigError`, `MissingPackageError`."""
    if options.is_bucket:
        return BucketRegister(options, group)
    if options.is_file:
        return FileRegister(options.directory, group)
    return open_object_register(options.url, group)
