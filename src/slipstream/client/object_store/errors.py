"""What can go wrong with an object store (docs/protocol/buckets.md#errors-of-object-stores).

ObjectStoreError
├── InvalidStoreNameError      letters, digits, - and _ only
├── StoreNotFoundError         no such store
├── StoreExistsError           a store of that name exists with another configuration
├── BadObjectInfoError         what describes an object cannot be read
├── BadObjectError             a name is missing, or options contradict each other
├── ObjectNotFoundError        no such object, or it is deleted
├── ObjectExistsError          the name is taken: by a rename, or a link over an object
├── LinkError                  a link that may not be made, or leads where nothing can be read
└── IncompleteObjectError      chunks are missing or have another size than was announced
    └── DigestMismatchError    what was read is not what was put
"""

from slipstream.errors import Error


class ObjectStoreError(Error):
    """Base of the errors of object stores."""


class InvalidStoreNameError(ObjectStoreError, ValueError):
    """A store's name holds letters, digits, ``-`` and ``_`` only."""


class StoreNotFoundError(ObjectStoreError):
    """There is no store of that name (`STREAM_NOT_FOUND`)."""


class StoreExistsError(ObjectStoreError):
    """A store of that name exists with another configuration (`STREAM_NAME_EXIST`)."""


class BadObjectError(ObjectStoreError, ValueError):
    """What is to be put is not described as an object must be."""


class BadObjectInfoError(ObjectStoreError):
    """What describes an object is not what an object store writes."""


class ObjectNotFoundError(ObjectStoreError, KeyError):
    """There is no object of that name, or it is deleted."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return Exception.__str__(self)


class ObjectExistsError(ObjectStoreError):
    """The name belongs to another object."""


class LinkError(ObjectStoreError):
    """A link may not be made as asked, or cannot be followed."""


class IncompleteObjectError(ObjectStoreError):
    """What is stored is less or more than the object's info says."""


class DigestMismatchError(IncompleteObjectError):
    """The digest of what was read is not the one that was stored with it."""
