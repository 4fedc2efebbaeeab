"""Incremental backups of streams, in a directory or an object store.

    place = open_place("s3://bucket/ORDERS")
    await place.back_up(js, "ORDERS")                      # what is new since the last run
    await place.restore(js, Point(time=yesterday))         # from what all runs have brought
    await place.check()                                    # without a server

A place holds the backup of one stream, in objects that are written once and never changed:

    manifests/<number>     all that counts: the highest number is the one in force
    parts/<name>           messages, in the archive's format, compressed
    runs/<name>            configuration, consumers and gaps as one run has found them

A run is a client of the public protocol, so any server's streams can be backed up.
"""

from slipstream.backups.manifest import Generation, Manifest, Part, Run
from slipstream.backups.place import Done, Place, open_place, stream_places
from slipstream.backups.restoring import Point, Restored
from slipstream.backups.stores import DirectoryStore, ObjectStore, Store, open_store

__all__ = [
    "DirectoryStore",
    "Done",
    "Generation",
    "Manifest",
    "ObjectStore",
    "Part",
    "Place",
    "Point",
    "Restored",
    "Run",
    "Store",
    "open_place",
    "open_store",
    "stream_places",
]
