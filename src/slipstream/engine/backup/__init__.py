"""Streams with their consumers as archives, and back
(docs/protocol/streams.md#snapshots-and-restores)."""
