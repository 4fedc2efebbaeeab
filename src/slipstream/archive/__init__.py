"""The formats in which streams are backed up, as bytes alone: no sockets, no files, no engine.

A backup is a compressed frame of `s2`. Inside is either the archive of nats-server 2.15 and later,
`entries`, which is also what Slipstream writes, or the tar archive of a stream's directory that
earlier versions of nats-server wrote, `file_store`.
"""
