"""A group's register as a key in a key-value bucket of a NATS cluster.

The version is the key's revision. Reads may come from a replica that is behind, and be stale. A key
that was deleted has no content, and a revision.
"""

import asyncio

from slipstream.client import Connection, connect
from slipstream.client.kv import KeyValue
from slipstream.client.kv.errors import BucketNotFoundError, RevisionMismatchError
from slipstream.errors import Error
from slipstream.server.cluster_options import RegisterOptions

CONNECT_SECONDS_MAX = 1.5


class BucketRegister:
    """The key with the group's name. It connects when it is asked first, and again if need be."""

    def __init__(self, options: RegisterOptions, group: str) -> None:
        self._options = options
        self._key = group
        self._connection: Connection | None = None
        self._bucket: KeyValue[bytes] | None = None
        self._opening = asyncio.Lock()

    @property
    def called(self) -> str:
        """The bucket and the key; servers may reach it at several addresses."""
        return f"nats bucket {self._options.bucket}, key {self._key}"

    async def get(self) -> tuple[bytes, str]:
        """The latest entry that the server asked has."""
        bucket = await self._open()
        entry = await bucket.entry(self._key)
        if entry is None:
            return b"", ""
        return b"" if entry.is_deleted else entry.data, str(entry.revision)

    async def put(self, data: bytes, version: str) -> bool:
        """Update the key, if that is its revision."""
        bucket = await self._open()
        try:
            await bucket.update(self._key, data, int(version or 0))
        except RevisionMismatchError:
            return False
        return True

    async def _open(self) -> "KeyValue[bytes]":
        async with self._opening:
            connection = self._connection
            if connection is None or connection.is_closed:  # such as by servers that refused it
                self._bucket = None
                connection = self._connection = await self._connect()
            if self._bucket is None:
                try:
                    self._bucket = await connection.jetstream().key_value(self._options.bucket)
                except BucketNotFoundError as error:
                    raise Error(
                        f"there is no bucket {self._options.bucket}: make it once, with the "
                        "replicas that it is to have, such as slipstream kv add "
                        f"{self._options.bucket} --replicas 3"
                    ) from error
            return self._bucket

    async def _connect(self) -> Connection:
        options = self._options
        return await connect(
            [url.strip() for url in options.url.split(",")],
            name=f"register of the group {self._key}",
            credentials=options.credentials,
            tls_ca=options.ca_file,
            connect_timeout=CONNECT_SECONDS_MAX,
            timeout=CONNECT_SECONDS_MAX,
            reconnect_wait_max=1.0,
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
