"""The register on a majority of the group's servers: Paxos with ballots, for a single value.

Each server is an acceptor: it keeps the latest ballot that it has promised, and what it has
accepted with which ballot, and answers once that is synced. Who wants to change the value is a
proposer, with a ballot of its own:

    Prepare(b)    majority: Promise(b, accepted, value)    the value of the highest ballot stands
    Accept(b, v)  majority: Accepted(b)                    v is that value, or the one after it

If the value is not the expected one, it is accepted again unchanged: only what a majority has
accepted with one ballot is known to stand. (Rystsov's CASPaxos; Lamport's synod for each change.)

The proposer's own promise has to be among the majority before it asks anyone to accept. So after a
crash it knows its last such ballot, and uses none twice.

**Members change.** The value says who is in the group. A proposer asks a quorum of those that it
knows; if the highest value that it hears of names others, it asks a quorum of these, with a new
ballot. What a ballot accepts needs a quorum of the members before it, and of those that it names.
"""

from collections.abc import Callable

import msgspec

from slipstream.group.lease import Settings
from slipstream.group.membership import Membership
from slipstream.group.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Message,
    Outbid,
    Prepare,
    Promise,
    RegisterValue,
)
from slipstream.group.outbox import Outbox
from slipstream.group.register import Outcome


class MembersRegister:
    """A server's part in it, as acceptor and as proposer; a `Register`. `membership` is the latest
    that the server knows."""

    def __init__(
        self,
        name: str,
        membership: Callable[[], Membership],
        outbox: Outbox,
        settings: Settings,
    ) -> None:
        self.is_outside = False
        self._name = name
        self._membership = membership
        self._outbox = outbox
        self._settings = settings
        self._round = 0  # the highest that was heard of
        self._proposal: _Proposal | None = None
        self.outcome: Outcome | None = None

    def compare_and_set(self, now: int, value: RegisterValue) -> None:
        """See `Register`."""
        self.outcome = None
        self._propose(now, value, self._membership())

    def give_up(self) -> None:
        """See `Register`. It is not asked for again: a ballot that came to its end after all, while
        another server leads, would stand in the way of who is to lead next."""
        self._proposal = None

    def _propose(
        self, now: int, value: RegisterValue, membership: Membership, may_bid_again: bool = True
    ) -> None:
        self._round = max(self._round, self._outbox.state.promised.round) + 1
        ballot = Ballot(self._round, self._name)
        self._proposal = _Proposal(ballot, value, membership, now, may_bid_again)
        self._ask(self._proposal)

    def _ask(self, proposal: "_Proposal") -> None:
        for member in proposal.asked:
            if member not in proposal.answers:
                self._outbox.send(member, proposal.question())

    def tick(self, now: int) -> None:
        """See `Register`."""
        proposal = self._proposal
        if proposal is None or now < proposal.asked_at + self._settings.retry:
            return
        if proposal.is_outbid:
            self._propose(now, proposal.wanted, self._membership())
        else:
            proposal.asked_at = now
            self._ask(proposal)

    def receive(self, sender: str, message: Message) -> None:
        """See `Register`."""
        match message:
            case Prepare(ballot):
                self._prepare(sender, ballot)
            case Accept(ballot, value):
                self._accept(sender, ballot, value)
            case Promise(ballot) | Accepted(ballot):
                if self._proposal is not None and ballot == self._proposal.ballot:
                    self._answered(self._proposal, sender, message)
            case Outbid(ballot, promised):
                self._round = max(self._round, promised.round)
                if self._proposal is not None and ballot == self._proposal.ballot:
                    self._outbid(self._proposal)

    # -- acceptor --------------------------------------------------------------------------------

    def _prepare(self, sender: str, ballot: Ballot) -> None:
        state = self._outbox.state
        if ballot < state.promised:
            self._outbox.send(sender, Outbid(ballot, state.promised))
            return
        self._outbox.keep(msgspec.structs.replace(state, promised=ballot))
        self._outbox.send_synced(sender, Promise(ballot, state.accepted, state.value))

    def _accept(self, sender: str, ballot: Ballot, value: RegisterValue) -> None:
        state = self._outbox.state
        if ballot < state.promised:
            self._outbox.send(sender, Outbid(ballot, state.promised))
            return
        changed = msgspec.structs.replace(state, promised=ballot, accepted=ballot, value=value)
        self._outbox.keep(changed)
        self._outbox.send_synced(sender, Accepted(ballot))

    # -- proposer --------------------------------------------------------------------------------

    def _outbid(self, proposal: "_Proposal") -> None:
        """A server has promised more. Where that is of a ballot long ago, of which this one was not
        told, there is nothing to wait for. Two servers that go on outbidding each other wait."""
        if proposal.may_bid_again:
            membership = self._membership()
            self._propose(proposal.asked_at, proposal.wanted, membership, may_bid_again=False)
        else:
            proposal.is_outbid = True

    def _answered(self, proposal: "_Proposal", sender: str, message: Message) -> None:
        if isinstance(message, Promise) != (proposal.chosen is None):
            return  # late, or doubled
        proposal.answers.add(sender)
        if isinstance(message, Promise) and message.value and message.accepted > proposal.latest:
            proposal.latest, proposal.current = message.accepted, message.value
        if self._name not in proposal.answers or not proposal.is_answered:
            return
        if proposal.chosen is None:
            self._choose(proposal)
        else:
            self.outcome = Outcome(proposal.is_set, proposal.chosen)
            self._proposal = None

    def _choose(self, proposal: "_Proposal") -> None:
        """All that earlier ballots may have had accepted is known."""
        membership = proposal.membership
        current = proposal.current or RegisterValue(0, "", ()).with_membership(membership)
        if current.membership != membership:
            self._propose(proposal.asked_at, proposal.wanted, current.membership)
            return
        wanted = proposal.wanted.set_over(current)
        proposal.is_set = wanted is not None
        proposal.chosen = wanted or current
        proposal.answers = set()
        self._ask(proposal)


class _Proposal:
    """One ballot, which asks a quorum of `membership`."""

    def __init__(
        self,
        ballot: Ballot,
        wanted: RegisterValue,
        membership: Membership,
        asked_at: int,
        may_bid_again: bool,
    ) -> None:
        self.ballot = ballot
        self.wanted = wanted
        self.membership = membership
        self.asked_at = asked_at  # ns
        self.answers: set[str] = set()  # who has answered the question
        self.latest = NO_BALLOT  # the highest one of the promises ...
        self.current: RegisterValue | None = None  # ... and its value
        self.chosen: RegisterValue | None = None  # what is to be accepted; None while it promises
        self.is_set = False  # whether that is what was wanted
        self.is_outbid = False
        self.may_bid_again = may_bid_again  # at once, if it is outbid

    def question(self) -> Message:
        """What to ask the members."""
        return Accept(self.ballot, self.chosen) if self.chosen else Prepare(self.ballot)

    @property
    def asked(self) -> tuple[str, ...]:
        """Whom to ask: those that are members before, or afterwards."""
        later = self.chosen.membership.everyone if self.chosen else ()
        return tuple(dict.fromkeys((*self.membership.everyone, *later)))

    @property
    def is_answered(self) -> bool:
        """Whether enough of them have."""
        chosen = self.chosen
        return self.membership.is_quorum(self.answers) and (
            chosen is None or chosen.membership.is_quorum(self.answers)
        )
