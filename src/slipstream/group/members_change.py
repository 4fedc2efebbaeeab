"""How a leader changes who is in the group, one change at a time (docs/group.md#members).

    CATCHING_UP   who is to come is sent entries, or a checkpoint first, and counts for nothing
    COMMITTING    from now on an entry takes a quorum of both memberships; all entries up to this
                  moment have to have that, too, before anybody may rely on it
    JOINING       the register gets the step that needs both
    LEAVING       ... and the one that needs the new members alone
    DONE

Until the register is asked to take the first step, the change can be given up without a trace. From
then on whoever leads finishes it: a leader that finds both memberships in the register begins with
COMMITTING. One that finds a later epoch there, which somebody has taken and not led in, can change
nothing in its own: it is overtaken, and has to step down.

`GoingAlone` is the step of a leader that the other one of two does not answer, in a register
outside of the group.
"""

from enum import Enum, auto

from slipstream.group.leader import Leader
from slipstream.group.lease import Settings
from slipstream.group.log_replica import LogReplica
from slipstream.group.membership import Membership
from slipstream.group.messages import RegisterValue
from slipstream.group.register import Register


class Stage(Enum):
    """How far a change is."""

    CATCHING_UP = auto()
    COMMITTING = auto()
    JOINING = auto()
    LEAVING = auto()
    DONE = auto()
    GIVEN_UP = auto()
    OVERTAKEN = auto()


class MembersChange:
    """To other members; those of the leader are as the register has them."""

    def __init__(
        self,
        name: str,
        leader: Leader,
        log: LogReplica,
        register: Register,
        settings: Settings,
        now: int,
        members: tuple[str, ...] = (),
        away: tuple[str, ...] = (),
    ) -> None:
        self.stage = Stage.CATCHING_UP
        self._name = name
        self._leader = leader
        self._log = log
        self._register = register
        self._settings = settings
        self._before = leader.membership
        self._wanted: RegisterValue | None = None
        self._until = 0  # when it is given up
        if self._before.previous:  # another leader has begun it
            self._joint = self._before
            self._commit(now)
        else:
            self._joint = self._before.begin_change(members, away)
            for member in members:
                leader.learn(now, member)

    @property
    def members(self) -> tuple[str, ...]:
        """Who is to be in the group afterwards."""
        return self._joint.members

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be done."""
        return self.stage in (Stage.DONE, Stage.GIVEN_UP, Stage.OVERTAKEN)

    def _added(self) -> list[str]:
        return [one for one in self._joint.members if one not in self._before.everyone]

    def go_on(self, now: int) -> None:
        """Do what can be done now."""
        match self.stage:
            case Stage.CATCHING_UP:
                if all(self._leader.has_caught_up(now, one) for one in self._added()):
                    self._until = now + 4 * self._settings.promise
                    self._commit(now)
            case Stage.COMMITTING:
                if self._leader.index_on_quorum() >= self._needed and self._leader.serves:
                    self._set(now, Stage.JOINING, self._joint)
                elif self._until and now >= self._until:
                    self.give_up()
            case Stage.JOINING | Stage.LEAVING:
                self._look_at_register(now)

    def _commit(self, now: int) -> None:
        self.stage = Stage.COMMITTING
        self._needed = self._log.end.index
        self._leader.membership = self._joint

    def give_up(self) -> bool:
        """Go on with the members that there are; False if the register was asked already."""
        if self.stage not in (Stage.CATCHING_UP, Stage.COMMITTING) or self._before.previous:
            return False
        self.stage = Stage.GIVEN_UP
        self._leader.membership = self._before
        for member in self._added():
            if member not in self._before.away:
                self._leader.forget(member)
        return True

    def _set(self, now: int, stage: Stage, membership: Membership) -> None:
        if membership == self._leader.told:  # the register has it
            self.stage = stage
            self._stepped(now)
            return
        self.stage = stage
        value = RegisterValue(self._leader.epoch, self._name, ())
        self._wanted = value.with_membership(membership)
        self._register.compare_and_set(now, self._wanted)

    def _look_at_register(self, now: int) -> None:
        outcome = self._register.outcome
        if outcome is None:
            return
        if outcome.value == self._wanted:
            self._leader.told = self._wanted.membership
            self._stepped(now)
        else:
            self.stage = Stage.OVERTAKEN

    def _stepped(self, now: int) -> None:
        """The register has the step of this stage."""
        if self.stage is Stage.JOINING:
            self._set(now, Stage.LEAVING, self._joint.end_change())
            return
        self.stage = Stage.DONE
        self._leader.membership = self._leader.told
        for member in (*self._before.whole, *self._joint.previous):
            if member not in self._joint.members and member not in self._joint.away:
                self._leader.forget(member)


class GoingAlone:
    """The step to the leader alone. It is a change that cannot be given up: the register may have
    it at any time, and until it is known to, the other one counts."""

    def __init__(self, name: str, leader: Leader, register: Register, now: int) -> None:
        self.stage = Stage.LEAVING
        self.members = (name,)
        self._leader = leader
        self._register = register
        self._wanted = RegisterValue(leader.epoch, name, ()).with_membership(
            leader.told.alone(name)
        )
        register.compare_and_set(now, self._wanted)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be done."""
        return self.stage in (Stage.DONE, Stage.OVERTAKEN)

    def give_up(self) -> bool:
        """It cannot be."""
        return False

    def go_on(self, now: int) -> None:
        """Look whether the register has it."""
        outcome = self._register.outcome
        if outcome is None or self.is_over:
            return
        if outcome.value == self._wanted:
            self._leader.membership = self._leader.told = self._wanted.membership
            self.stage = Stage.DONE
        else:
            self.stage = Stage.OVERTAKEN
