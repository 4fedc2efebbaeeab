"""What can go wrong with a key-value bucket (docs/protocol/buckets.md#errors-of-buckets).

KeyValueError
├── InvalidBucketNameError     letters, digits, - and _ only
├── InvalidKeyError            letters, digits and -/_=. only, no empty token at an end
├── BucketNotFoundError        no such bucket
├── BucketExistsError          a bucket of that name exists with another configuration
├── BadBucketError             the stream behind it is not a key-value bucket
├── KeyNotFoundError           nothing is stored under the key
│   └── KeyDeletedError        its latest entry is a delete or purge
├── KeyExistsError             `create` of a key that has a value
├── RevisionMismatchError      `update` or `delete` with a revision that is not the latest
└── BucketOptionError          an option the bucket or its server cannot honour
"""

from slipstream.errors import Error


class KeyValueError(Error):
    """Base of the errors of key-value buckets."""


class InvalidBucketNameError(KeyValueError, ValueError):
    """A bucket's name holds letters, digits, ``-`` and ``_`` only."""


class InvalidKeyError(KeyValueError, ValueError):
    """A key holds letters, digits and ``-/_=.`` only, and no dot at its ends or beside another."""


class BucketNotFoundError(KeyValueError):
    """There is no bucket of that name (`STREAM_NOT_FOUND`)."""


class BucketExistsError(KeyValueError):
    """A bucket of that name exists with another configuration (`STREAM_NAME_EXIST`)."""


class BadBucketError(KeyValueError):
    """The stream exists but keeps no message per subject: it is not a bucket."""


class KeyNotFoundError(KeyValueError, KeyError):
    """Nothing is stored under the key."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return Exception.__str__(self)


class KeyDeletedError(KeyNotFoundError):
    """The key's latest entry is a delete, a purge or the marker of an expiry.

    `revision` is that entry's.
    """

    def __init__(self, message: str, revision: int) -> None:
        super().__init__(message)
        self.revision = revision


class KeyExistsError(KeyValueError):
    """`create` found a value under the key (`STREAM_WRONG_LAST_SEQUENCE`)."""


class RevisionMismatchError(KeyValueError):
    """The revision given is not the key's latest one (`STREAM_WRONG_LAST_SEQUENCE`, or
    `STREAM_WRONG_LAST_SEQUENCE_CONSTANT`)."""


class BucketOptionError(KeyValueError, ValueError):
    """An option that the bucket, or the server it is on, cannot honour."""
