"""What carries a member of a group (`slipstream.group`) in a real process.

store       its log and its state in files
  replay    what is found there, and what is missing
  records   the bytes of it
"""

from slipstream.server.group.store import GroupStore, Identity, Stored

__all__ = ["GroupStore", "Identity", "Stored"]
