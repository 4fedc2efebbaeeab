"""Who is in the group, and which of them are enough.

Members change by two steps of the register (joint consensus, as in Raft's paper):

    ABC            A B of 3 are enough
    ABD from ABC   enough of ABC, and enough of ABD
    ABD

Any two quorums of neighbouring steps have a server in common. So what was promised or synced before
a step is known to whoever has a quorum after it, and a server that has missed steps finds the next
one by asking a quorum of those that it knows.

**One of two goes on alone** where the register lies outside of the group. In a group of two each
quorum has both, so each has all that was ever committed; the register takes one step, which of them
goes on:

    AB
    A, and B is away
    AB from A         once B has what A has got meanwhile
    AB

Who is away has lost nothing, is sent entries, counts for nothing, and cannot lead: it is in no
membership that the register would let it lead with.
"""

from collections.abc import Collection, Mapping

import msgspec


class Membership(msgspec.Struct, array_like=True, frozen=True):
    """The members; while they change, those of before, too."""

    members: tuple[str, ...]
    previous: tuple[str, ...] = ()  # not empty: quorums of both are needed
    number: int = 0  # of steps that there were
    away: tuple[str, ...] = ()  # who is in the group, and counts for nothing until it is back

    @property
    def everyone(self) -> tuple[str, ...]:
        """Whose word counts."""
        return (*self.members, *(name for name in self.previous if name not in self.members))

    @property
    def whole(self) -> tuple[str, ...]:
        """Who is in the group, whether its word counts or not."""
        return (*self.everyone, *self.away)

    def is_quorum(self, names: Collection[str]) -> bool:
        """Whether these servers are enough."""
        return all(
            sum(name in names for name in group) > len(group) // 2
            for group in (self.members, self.previous)
            if group
        )

    def is_in_each_quorum(self, names: Collection[str]) -> bool:
        """Whether there is no quorum without one of these servers. In a group of an even size half
        of them are enough for that; else it takes a majority."""
        return all(
            sum(name not in names for name in group) <= len(group) // 2
            for group in (self.members, self.previous)
            if group
        )

    @property
    def has_even_group(self) -> bool:
        """Whether fewer servers than are a quorum may be in each one."""
        return any(group and len(group) % 2 == 0 for group in (self.members, self.previous))

    def reached(self, values: Mapping[str, int]) -> int:
        """The highest value that a quorum has reached; each member has to have one."""
        return min(
            sorted((values[name] for name in group), reverse=True)[len(group) // 2]
            for group in (self.members, self.previous)
            if group
        )

    def begin_change(self, members: tuple[str, ...], away: tuple[str, ...] = ()) -> "Membership":
        """The step to other members, with those of before."""
        assert not self.previous, "one change at a time"
        return Membership(members, self.members, self.number + 1, away)

    def end_change(self) -> "Membership":
        """The step after that, without them."""
        return Membership(self.members, (), self.number + 1, self.away)

    def is_in_all_quorums(self, name: str) -> bool:
        """Whether no quorum is without a member, so that it has all that was ever committed."""
        groups = [group for group in (self.members, self.previous) if name in group]
        return name in self.members and any(len(group) == 2 for group in groups)

    def alone(self, name: str) -> "Membership":
        """The step to a member that is in all quorums, by itself."""
        assert self.is_in_all_quorums(name), "others may have committed without it"
        others = tuple(one for one in self.members if one != name)
        return Membership((name,), (), self.number + 1, (*others, *self.away))
