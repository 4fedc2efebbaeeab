"""A group's register as an object in S3, Google Cloud Storage or Azure, through `obstore`.

The version is the store's own: an ETag, a generation, or both. A request of the store's client may
be carried out twice, and a store that is asked to repeat a put refuses it the second time: both are
what a register expects.
"""

import os
from datetime import timedelta

import msgspec

from slipstream.errors import ConfigError, Error
from slipstream.extras import require

TIMEOUT_SECONDS = 1.5  # of a request
RETRIES_MAX = 1  # by the store's client; the register asks again by itself
_TRUE = ("1", "true", "yes", "on")


class ObjectRegister:
    """The object `path` in a store of `obstore`."""

    def __init__(self, store: object, path: str, called: str) -> None:
        self._obstore = require("obstore", "objectstore")
        self._errors = require("obstore.exceptions", "objectstore")
        self._store = store
        self._path = path
        self._called = called

    @property
    def called(self) -> str:
        """The URL, with the object."""
        return self._called

    async def get(self) -> tuple[bytes, str]:
        """Get the object."""
        try:
            found = await self._obstore.get_async(self._store, self._path)
            data = bytes(await found.bytes_async())
        except FileNotFoundError:
            return b"", ""
        except (self._errors.BaseError, OSError) as error:
            raise self._failed("read", error) from error
        meta = found.meta
        return data, _version(meta["e_tag"], meta["version"])

    async def put(self, data: bytes, version: str) -> bool:
        """Put the object where there is none, or over that version."""
        mode = msgspec.json.decode(version) if version else "create"
        try:
            await self._obstore.put_async(
                self._store, self._path, data, mode=mode, use_multipart=False
            )
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return False
        except NotImplementedError as error:
            raise Error(
                f"the register {self.called} cannot be written on a condition there: name another "
                "store"
            ) from error
        except (self._errors.BaseError, OSError) as error:
            raise self._failed("written", error) from error
        return True

    def _failed(self, what: str, error: Exception) -> Error:
        said = str(error).partition("\n\nDebug source:")[0]
        return Error(f"the register {self.called} cannot be {what}: {said}")

    async def close(self) -> None:
        """Nothing is held."""


def _version(e_tag: str | None, version: str | None) -> str:
    known = {"e_tag": e_tag, "version": version}
    return msgspec.json.encode({name: one for name, one in known.items() if one}).decode()


def open_object_register(url: str, group: str) -> ObjectRegister:
    """The object of a group below a URL; its credentials are in the environment, as the cloud's own
    tools have them. Raises `ConfigError`, `MissingPackageError`."""
    stores = require("obstore.store", "objectstore")
    errors = require("obstore.exceptions", "objectstore")
    name = f"{group}.json"
    client: dict[str, timedelta | bool] = {"timeout": timedelta(seconds=TIMEOUT_SECONDS)}
    if os.environ.get("AWS_ALLOW_HTTP", "").lower() in _TRUE:  # what is given here hides that
        client["allow_http"] = True
    retries = {
        "max_retries": RETRIES_MAX,
        "retry_timeout": timedelta(seconds=TIMEOUT_SECONDS),
    }
    try:
        store = stores.from_url(url, client_options=client, retry_config=retries)
    except (errors.BaseError, ValueError) as error:
        said = str(error).partition("\n\nDebug source:")[0]
        raise ConfigError(
            f'cluster: register: url "{url}": {said}; write s3://, gs:// or az:// with a bucket '
            "and a path"
        ) from error
    return ObjectRegister(store, name, f"{url.rstrip('/')}/{name}")
