"""The commit log of a server: one write and one sync for many small changes (docs/storage.md).

entry        what one commit holds, as bytes
replay       the entries of both files, in order, and what they come to
commit_log   the log while the server runs: entries, checkpoints, waiting for room
"""
