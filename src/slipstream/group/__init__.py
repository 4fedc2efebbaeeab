"""Three or five servers that act as one: state machines without I/O (docs/group.md).

    member                one server of a group, whole: what comes in, what goes out
      leader              sends entries, counts synced copies, holds the lease
      members_change      has servers join and leave, while entries go on
      disk_watch          whether a leader's disk is full or slow, and who should lead then
      candidate           becomes leader: asks, takes the register, seals, fetches the log's end
      log_replica         the server's copy of the log: append, seal, read
      members_register    the register on a majority of the servers; `register` is any of its kind
      outside_register    ... in an object store, or a bucket of a NATS cluster
      lease               who may answer reads, and who may not be sealed yet
      outbox              messages and disk jobs on their way out, and which waits for which
    membership            who is in the group, and how many of them are enough
    messages              what servers say to each other, and entries

Read in this order: messages, log_replica, leader, candidate, lease, register, member, and at last
membership and members_change. Time, messages and results of the disk come in through `Member`;
messages and disk jobs are taken from it. `slipstream.testing.simulated_group` drives it through
faults.
"""

from slipstream.group.disk_watch import Wish
from slipstream.group.leader import FollowerState
from slipstream.group.lease import Settings
from slipstream.group.member import Member, NotLeaderError
from slipstream.group.messages import DiskHealth, Entry, Mark, Message, decode, encode
from slipstream.group.outbox import DiskJob, State
from slipstream.group.outside_register import OutsideRegister
from slipstream.group.register import Outcome, Register, RegisterValue

__all__ = [
    "DiskHealth",
    "DiskJob",
    "Entry",
    "Mark",
    "Member",
    "Message",
    "NotLeaderError",
    "Outcome",
    "OutsideRegister",
    "Register",
    "RegisterValue",
    "FollowerState",
    "State",
    "Settings",
    "Wish",
    "decode",
    "encode",
]
