"""The register: one small value, who leads which epoch, that changes by compare-and-set.

It is what makes the leader of an epoch unique. `members_register` keeps it on a majority of the
group's own servers; `outside_register` in an object store with conditional puts, or in a bucket of
a NATS cluster. Like all of this folder it does no I/O: what it is to send or to write leaves by the
member's outbox, or by a driver that knows its kind.
"""

from typing import Protocol

import msgspec

from slipstream.group.messages import Message, RegisterValue

__all__ = ["Outcome", "Register", "RegisterValue"]


class Outcome(msgspec.Struct, frozen=True):
    """What became of a compare-and-set."""

    is_set: bool
    value: RegisterValue  # that the register holds now


class Register(Protocol):
    """A register, as a candidate sees it. One compare-and-set at a time."""

    is_outside: bool  # of the group, so that one of two servers may have it without the other

    def compare_and_set(self, now: int, value: RegisterValue) -> None:
        """Have it hold `value` if that follows what it holds (`RegisterValue.set_over`); see
        `outcome`. Takes the place of an earlier call, which may take effect for all that."""

    @property
    def outcome(self) -> Outcome | None:
        """Of the last call; None while it is not known.

        `is_set` is said once at most of a new epoch, and never of one that an earlier process of
        this server has set: it may have led in it. Of a step of the members it may not be said
        although the register holds it.
        """

    def give_up(self) -> None:
        """The last call is of no use any more. It may take effect for all that."""

    def receive(self, sender: str, message: Message) -> None:
        """A message about the register has come, of another member or of this one."""

    def tick(self, now: int) -> None:
        """Time has gone by: ask those again who have not answered."""
