"""What carries a member of a group (`slipstream.group`) in a real process.

    opening           a host, from the options of a server
    host              the member on an event loop: append, committed entries, who leads
      joining         servers that come into a group that is there
      outside         a register in a store outside of the group
      checkpoints     what the owner of a host is asked for, so that the log's beginning can go
      transfers       checkpoints on their way to servers that lack what is gone
      links           a connection to each other server: who dials, who is let in
        link          one connection: TLS, queues, silence
        handshake     how both sides prove that they share the secret
        frames        messages with length and checksum
        certificates  TLS of both sides
      store           the member's log and its state in files
        replay        what is found there, and what is missing
        records       the bytes of it

`slipstream.server.replica` puts a server's store on it.
"""

from slipstream.server.group.certificates import make_contexts
from slipstream.server.group.checkpoints import (
    Checkpoint,
    Checkpoints,
    TransferBrokenError,
    TrimmedError,
)
from slipstream.server.group.host import BusyError, GroupHost, OutcomeUnknownError
from slipstream.server.group.joining import server_name_of
from slipstream.server.group.link import LinkContexts
from slipstream.server.group.links import LinkSettings
from slipstream.server.group.opening import make_host
from slipstream.server.group.outside import RegisterStore
from slipstream.server.group.store import GroupStore, Identity, Stored

__all__ = [
    "BusyError",
    "Checkpoint",
    "Checkpoints",
    "GroupHost",
    "GroupStore",
    "Identity",
    "LinkContexts",
    "LinkSettings",
    "OutcomeUnknownError",
    "RegisterStore",
    "Stored",
    "TransferBrokenError",
    "TrimmedError",
    "make_contexts",
    "make_host",
    "server_name_of",
]
