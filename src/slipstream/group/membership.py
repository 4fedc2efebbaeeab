"""Who is in the group, and which of them are enough.

Members change by two steps of the register (joint consensus, as in Raft's paper):

    ABC            A B of 3 are enough
    ABD from ABC   enough of ABC, and enough of ABD
    ABD

Any two quorums of neighbouring steps have a server in common. So what was promised or synced before
a step is known to whoever has a quorum after it, and a server that has missed steps finds the next
one by asking a quorum of those that it knows.
"""

from collections.abc import Collection, Mapping

import msgspec


class Membership(msgspec.Struct, array_like=True, frozen=True):
    """The members; while they change, those of before, too."""

    members: tuple[str, ...]
    previous: tuple[str, ...] = ()  # not empty: quorums of both are needed
    number: int = 0  # of steps that there were

    @property
    def everyone(self) -> tuple[str, ...]:
        """Whose word counts."""
        return (*self.members, *(name for name in self.previous if name not in self.members))

    def is_quorum(self, names: Collection[str]) -> bool:
        """Whether these servers are enough."""
        return all(
            sum(name in names for name in group) > len(group) // 2
            for group in (self.members, self.previous)
            if group
        )

    def reached(self, values: Mapping[str, int]) -> int:
        """The highest value that a quorum has reached; each member has to have one."""
        return min(
            sorted((values[name] for name in group), reverse=True)[len(group) // 2]
            for group in (self.members, self.previous)
            if group
        )

    def begin_change(self, members: tuple[str, ...]) -> "Membership":
        """The step to other members, with those of before."""
        assert not self.previous, "one change at a time"
        return Membership(members, self.members, self.number + 1)

    def end_change(self) -> "Membership":
        """The step after that, without them."""
        return Membership(self.members, (), self.number + 1)
