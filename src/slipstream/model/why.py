"""Why a consumer delivers or does not: what is known about it, and the reasons that follow.

A consumer delivers when it is not paused, has a message that may go out, has room for it among
those that are out for acknowledgement, and somebody takes it. `reasons` looks at these in order.

The engine fills `Facts` from its state (`engine/consumer/explain.py`); a client of another server
fills them from STREAM.INFO and CONSUMER.INFO (`client/jetstream/why.py`), and leaves at None what
only Slipstream says. Times are nanoseconds since the epoch, 0 for never; durations are nanoseconds.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from slipstream.model.durations import LONGEST_NS, SECOND, shown_duration
from slipstream.model.times import time_text

SHOWN_MAX = 5  # messages that a sentence names one by one


class ReasonCode(StrEnum):
    """What a reason is about, for programs; docs/cli.md has a table of them."""

    PAUSED = "paused"
    PENDING = "pending"
    NOTHING_PENDING = "nothing_pending"
    FILTER_MATCHES_NOTHING = "filter_matches_nothing"
    DELIVER_NEW = "deliver_new"
    STARTS_LATER = "starts_later"
    MAX_ACK_PENDING = "max_ack_pending"
    OUTSTANDING = "outstanding"
    SYNCING = "syncing"
    STORAGE_FAILED = "storage_failed"
    REPLAY = "replay"
    REDELIVERY = "redelivery"
    MAX_DELIVER = "max_deliver"
    DEAD_LETTERS_WAIT = "dead_letters_wait"
    DEAD_LETTERS = "dead_letters"
    NO_INTEREST = "no_interest"
    NOBODY_ASKS = "nobody_asks"
    SLOW_CLIENT = "slow_client"
    FLOW_CONTROL = "flow_control"
    RATE_LIMIT = "rate_limit"
    PRIORITY_GROUP = "priority_group"
    MAX_WAITING = "max_waiting"
    WAITING = "waiting"
    PERMISSION = "permission"


class Reason(msgspec.Struct):
    """One thing that is known. `blocks` says that nothing is delivered as long as it holds."""

    code: str  # a `ReasonCode`, or one of a newer server
    text: str  # sentences
    advice: str = ""  # what to do, in a sentence; "" where there is nothing to do
    blocks: bool = True

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".rstrip()


class KnownMessage(msgspec.Struct):
    """A message that a reason names."""

    seq: int  # in the stream
    subject: str
    stored: int  # when
    delivered: int | None = None  # when last


class DeadLetterFacts(msgspec.Struct, kw_only=True):
    """Where messages go that a consumer gives up."""

    subject: str = ""  # `dead_letter` of the configuration
    stream: str = ""  # that stores the subject; "" if none does
    stored: int = 0  # messages there
    waiting: int = 0  # messages that are to go there
    sequences: list[int] = []  # the first of those that wait
    problem: str = ""  # why they wait, where it is not only for the disk


class Facts(msgspec.Struct, kw_only=True):
    """What is known about a consumer and its stream at the time `now`."""

    stream: str
    consumer: str
    now: int
    messages: int  # in the stream
    last_seq: int  # of the stream
    # -- how it is configured
    deliver_subject: str = ""  # "": a pull consumer
    deliver_group: str = ""
    deliver_new: bool = False  # deliver policy new
    ack_wait: int = 0
    has_backoff: bool = False
    max_ack_pending: int = 0  # 0 or less: any number, here and below
    max_deliver: int = 0
    max_waiting: int = 0
    rate_limit_bps: int = 0
    # -- where it is
    paused_until: int = 0
    delivered_seq: int = 0  # highest stream sequence that it was given; 0 if it was given nothing
    delivered_at: int = 0
    next_seq: int = 0  # first sequence that it looks at; 0 if that is the one after `delivered_seq`
    num_pending: int = 0
    unmatched_filters: list[str] = []  # that no stored subject matches
    due: int | None = None  # how many messages may be delivered again now
    is_syncing: bool | None = None  # whether what comes next is not on disk yet
    arriving: int = 0  # messages of the stream that are not on disk yet, and so not in `messages`
    servers: int = 0  # of the group that has to have what comes next; 0 for a server by itself
    silent: list[str] = []  # those of them that have not been heard for long ...
    silent_for: int = 0  # ... the longest of these times
    failure: str | None = None  # how the stream's storage failed; "" if it has not
    replay_at: int | None = None  # with replay policy original: when the next one may go
    # -- what is out for acknowledgement
    num_ack_pending: int = 0
    num_redelivered: int = 0
    outstanding: list[KnownMessage] = []  # the oldest of them
    redelivery_at: int = 0  # when the first of them is delivered again
    is_redelivery_exact: bool = False  # else `redelivery_at` is the latest that it can be
    # -- what was given up
    num_exhausted: int = 0  # messages that were delivered as often as they may be
    exhausted: list[KnownMessage] = []  # the oldest
    is_exhausted_exact: bool = False  # else `exhausted` has others, too
    dead_letters: DeadLetterFacts | None = None  # also None where none are configured
    # -- who takes messages
    is_heard: bool = False  # push: somebody listens on the deliver subject
    num_waiting: int = 0  # pull requests
    last_activity: int | None = None  # when a client last asked or acknowledged
    held_up_by: str | None = None  # SLOW_CLIENT, FLOW_CONTROL, RATE_LIMIT, PRIORITY_GROUP or ""
    free_at: int | None = None  # with RATE_LIMIT: when the next message may go
    pinned_at: int | None = None  # with PRIORITY_GROUP: since when a client is pinned; 0 if none is


class Explanation(msgspec.Struct):
    """Whether a consumer can deliver now, and why."""

    delivers: bool
    reasons: list[Reason]
    facts: Facts


def explain(facts: Facts) -> Explanation:
    """What follows from `facts`, with the facts themselves."""
    found = reasons(facts)
    return Explanation(not any(one.blocks for one in found), found, facts)


def reasons(facts: Facts) -> list[Reason]:
    """All that is known, in the order in which to look at it."""
    return [
        *_paused(facts),
        *_pending(facts),
        *_outstanding(facts),
        *_storage(facts),
        *_replay(facts),
        *_redelivery(facts),
        *_exhausted(facts),
        *_dead_letters(facts),
        *(_listeners(facts) if facts.deliver_subject else _requests(facts)),
    ]


def _paused(facts: Facts) -> Iterator[Reason]:
    if facts.paused_until:
        until, left = _moment(facts.paused_until), _span(facts.paused_until - facts.now)
        yield Reason(
            ReasonCode.PAUSED,
            f"It is paused until {until} (for {left}).",
            f"`slipstream consumer resume {facts.stream} {facts.consumer}` ends that.",
        )


def _pending(facts: Facts) -> Iterator[Reason]:
    """Whether there is anything left that it has not been given."""
    if facts.due:
        again = "waits to be delivered again" if facts.due == 1 else "wait to be delivered again"
        yield Reason(ReasonCode.PENDING, f"{_messages(facts.due)} {again}.", blocks=False)
    if facts.num_pending:
        wait = "waits to be delivered" if facts.num_pending == 1 else "wait to be delivered"
        yield Reason(ReasonCode.PENDING, f"{_messages(facts.num_pending)} {wait}.", blocks=False)
        return
    yield Reason(ReasonCode.NOTHING_PENDING, _nothing_pending(facts), blocks=not facts.due)
    if not facts.messages:
        return
    for pattern in facts.unmatched_filters:
        yield Reason(
            ReasonCode.FILTER_MATCHES_NOTHING,
            f'Its filter "{pattern}" matches no subject that the stream holds.',
            f"`slipstream stream subjects {facts.stream}` lists them.",
            blocks=not facts.due,
        )
    if facts.deliver_new and not facts.delivered_seq:
        text = "It delivers only what is published after it was made (deliver policy new)."
        yield Reason(ReasonCode.DELIVER_NEW, text, blocks=not facts.due)
    elif facts.next_seq > facts.last_seq + 1:
        text = (
            f"It begins at sequence {facts.next_seq:,}; the last of the stream is "
            f"{facts.last_seq:,}."
        )
        yield Reason(ReasonCode.STARTS_LATER, text, blocks=not facts.due)


def _nothing_pending(facts: Facts) -> str:
    if not facts.messages:
        return f"Nothing is pending: stream {facts.stream} holds no messages."
    out = facts.num_ack_pending
    if out == 1:
        return "Nothing new is pending: the last message is out for acknowledgement."
    if out:
        return f"Nothing new is pending: the last {out:,} messages are out for acknowledgement."
    if not facts.delivered_seq:
        return (
            f"Nothing is pending: none of the {_messages(facts.messages)} in stream "
            f"{facts.stream} is for it."
        )
    return (
        f"Nothing is pending: it has been given everything up to sequence "
        f"{facts.delivered_seq:,} of {facts.last_seq:,}."
    )


def _outstanding(facts: Facts) -> Iterator[Reason]:
    """Messages that were delivered and not acknowledged."""
    out, most = facts.num_ack_pending, facts.max_ack_pending
    if not out:
        return
    names = _names(facts.outstanding, out, facts.now)
    oldest = f" The oldest: {names}." if names else ""
    if not 0 < most <= out:
        of = f" of {most:,}" if most > 0 else ""
        are = "message is" if out == 1 and most <= 0 else "messages are"
        text = f"{out:,}{of} {are} out for acknowledgement.{oldest}"
        yield Reason(ReasonCode.OUTSTANDING, text, blocks=False)
        return
    full = (
        f"All {most:,} messages that may be out for acknowledgement are out"
        if most > 1
        else "The one message that may be out for acknowledgement is out"
    )
    since = f" since {_moment(facts.delivered_at)}, {_span(facts.now - facts.delivered_at)} ago"
    again = ""
    come = "they come again" if most > 1 else "it comes again"
    if facts.max_deliver == 1:
        come = "they are given up" if most > 1 else "it is given up"
    if facts.has_backoff:
        again = f"; after the backoff {come}"
    elif 0 < facts.ack_wait < LONGEST_NS:
        again = f"; after ack wait ({_span(facts.ack_wait)}) {come}"
    yield Reason(
        ReasonCode.MAX_ACK_PENDING,
        f"{full} (max_ack_pending){since if facts.delivered_at else ''}. Nothing new is delivered "
        f"until {'one' if most > 1 else 'it'} is acknowledged{again}.{oldest}",
        "See that its clients acknowledge, or raise max_ack_pending.",
        blocks=not facts.due,
    )


def _storage(facts: Facts) -> Iterator[Reason]:
    """What is to come is on its way to the disk."""
    if facts.failure:
        yield Reason(
            ReasonCode.STORAGE_FAILED,
            f"The stream's storage has failed: {facts.failure}.",
            "Mend the disk, then restart the server.",
            blocks=bool(facts.is_syncing) and not facts.due,
        )
    elif facts.is_syncing and facts.num_pending:
        text = f"What is pending is not {_place(facts)} yet; it is delivered as soon as it is."
        yield Reason(ReasonCode.SYNCING, text + _silence(facts), blocks=not facts.due)
    elif facts.arriving and not facts.num_pending:
        are = "is" if facts.arriving == 1 else "are"
        text = (
            f"{_messages(facts.arriving)} of the stream {are} not {_place(facts)} yet; what of "
            "that is for it is delivered then."
        )
        yield Reason(ReasonCode.SYNCING, text + _silence(facts), blocks=not facts.due)


def _place(facts: Facts) -> str:
    """Where a message has to be before it counts."""
    if not facts.servers:
        return "on disk"
    return f"on the disks of a majority of the {facts.servers} servers"


def _silence(facts: Facts) -> str:
    """Who of the group does not answer."""
    if not facts.silent:
        return ""
    has = "has" if len(facts.silent) == 1 else "have"
    text = f"{' and '.join(facts.silent)} {has} not answered for {_span(facts.silent_for)}."
    lost = 2 * len(facts.silent) >= facts.servers
    return f" There is no majority: {text}" if lost else f" {text}"


def _replay(facts: Facts) -> Iterator[Reason]:
    if facts.replay_at and facts.replay_at > facts.now and facts.num_pending:
        text = (
            f"It replays at the original pace: the next message is due "
            f"{_moment(facts.replay_at)} (in {_span(facts.replay_at - facts.now)})."
        )
        yield Reason(ReasonCode.REPLAY, text, blocks=not facts.due)


def _redelivery(facts: Facts) -> Iterator[Reason]:
    """What comes again, and when."""
    many = facts.num_redelivered
    if not facts.num_ack_pending or not facts.redelivery_at or (facts.num_pending and not many):
        return
    before = f"{_messages(many)} {'was' if many == 1 else 'were'} delivered more than once. "
    kind = "backoff" if facts.has_backoff else "ack wait"
    when = f"{_moment(facts.redelivery_at)} (in {_span(max(facts.redelivery_at - facts.now, 0))})"
    comes = "is given up (max_deliver)" if facts.max_deliver == 1 else "comes again"
    if facts.is_redelivery_exact:
        what = f"the first {comes} when its {kind} is over, at {when}"
    else:
        what = f"what is out {comes} when its {kind} is over, at {when} at the latest"
    text = f"{before if many else ''}Unless it is acknowledged, {what}."
    yield Reason(ReasonCode.REDELIVERY, text, blocks=False)


def _exhausted(facts: Facts) -> Iterator[Reason]:
    """Messages that are not delivered again, although nobody acknowledged them."""
    count, most = facts.num_exhausted, facts.max_deliver
    if not count or most <= 0:
        return
    have = "has used up its" if count == 1 else "have used up their"
    are = "is" if count == 1 else "are"
    it = "it" if count == 1 else "they"
    them = "it" if count == 1 else "them"
    deliveries = "only delivery" if most == 1 else f"{most:,} deliveries"
    names = _names(facts.exhausted, count, facts.now)
    which = f": {'' if facts.is_exhausted_exact else f'{it} {are} among '}{names}" if names else ""
    yield Reason(
        ReasonCode.MAX_DELIVER,
        f"{_messages(count)} {have} {deliveries} (max_deliver) and {are} not delivered "
        f"again{which}.",
        f"Unless something acknowledges or removes {them}, {it} stay{'s' * (count == 1)} in the "
        f"stream; a new consumer gets {them}.",
        blocks=False,
    )


def _dead_letters(facts: Facts) -> Iterator[Reason]:
    """What was given up and stored elsewhere, and what should be and cannot."""
    found = facts.dead_letters
    if found is None:
        return
    if found.waiting:
        sequences = ", ".join(map(str, found.sequences[:SHOWN_MAX]))
        more = found.waiting - min(len(found.sequences), SHOWN_MAX)
        which = f"{sequences} and {more:,} more" if more > 0 else sequences
        cause = f": {found.problem}" if found.problem else ""
        wait = "waits to be stored as a dead letter"
        if found.waiting > 1:
            wait = "wait to be stored as dead letters"
        yield Reason(
            ReasonCode.DEAD_LETTERS_WAIT,
            f"{_messages(found.waiting)} {wait} ({which}){cause}. Until then they take room of "
            "max_ack_pending, and are offered to the stream again each second.",
            ""
            if found.stream or not found.subject
            else f"Make a stream with subject "
            f"{found.subject}, or change `dead_letter` of the consumer.",
            blocks=0 < facts.max_ack_pending <= found.waiting,
        )
    if found.stored:
        letters = "dead letter is" if found.stored == 1 else "dead letters are"
        yield Reason(
            ReasonCode.DEAD_LETTERS,
            f"{found.stored:,} {letters} stored under {found.subject} in stream {found.stream}.",
            f"`slipstream consumer dead-letters ls {facts.stream} {facts.consumer}` lists those of "
            "this consumer.",
            blocks=False,
        )


def _listeners(facts: Facts) -> Iterator[Reason]:
    """Push: whether somebody listens, and may be sent something."""
    subject = facts.deliver_subject
    if not facts.is_heard:
        group = f' in queue group "{facts.deliver_group}"' if facts.deliver_group else ""
        yield Reason(
            ReasonCode.NO_INTEREST,
            f'Nobody listens on its deliver subject "{subject}"{group}.',
            "It delivers as soon as a client subscribes there.",
        )
    elif facts.held_up_by == ReasonCode.FLOW_CONTROL:
        text = f'The client on "{subject}" has not answered the last flow control request.'
        yield Reason(ReasonCode.FLOW_CONTROL, text, "See whether the client still works.")
    elif facts.held_up_by == ReasonCode.RATE_LIMIT:
        when = f"; the next message may go in {_span(max((facts.free_at or 0) - facts.now, 0))}"
        text = f"Its rate limit of {facts.rate_limit_bps:,} bits per second is used up{when}."
        yield Reason(ReasonCode.RATE_LIMIT, text)
    elif facts.held_up_by == ReasonCode.SLOW_CLIENT:
        text = f'The client on "{subject}" does not keep up with what was sent to it already.'
        yield Reason(ReasonCode.SLOW_CLIENT, text, "It goes on once the client has caught up.")


def _requests(facts: Facts) -> Iterator[Reason]:
    """Pull: whether somebody asks, and may be answered."""
    waiting = facts.num_waiting
    if not waiting:
        last = f"last delivery {_span(facts.now - facts.delivered_at)} ago"
        heard = ""
        if facts.last_activity and facts.last_activity > facts.delivered_at:
            heard = f"; no client was heard for {_span(max(facts.now - facts.last_activity, 0))}"
        yield Reason(
            ReasonCode.NOBODY_ASKS,
            "Nobody asks for messages at the moment: no pull request waits "
            f"({last if facts.delivered_at else 'last delivery never'}{heard}).",
        )
        return
    if facts.held_up_by == ReasonCode.PRIORITY_GROUP:
        text = "The clients that wait are served from a threshold on that is not reached."
        if facts.pinned_at:
            text = (
                f"The pinned client (since {_moment(facts.pinned_at)}) does not ask, and all "
                "others have to wait."
            )
        yield Reason(ReasonCode.PRIORITY_GROUP, text)
    elif facts.held_up_by == ReasonCode.SLOW_CLIENT:
        text = "The clients that wait do not keep up with what was sent to them already."
        yield Reason(ReasonCode.SLOW_CLIENT, text, "It goes on once one of them has caught up.")
    wait = "1 pull request waits" if waiting == 1 else f"{waiting:,} pull requests wait"
    if 0 < facts.max_waiting <= waiting:
        text = f"{wait}, as many as may (max_waiting); further ones are refused with 409."
        yield Reason(ReasonCode.MAX_WAITING, text, blocks=False)
    else:
        yield Reason(ReasonCode.WAITING, f"{wait}.", blocks=False)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _names(messages: list[KnownMessage], count: int, now: int) -> str:
    """The first of them, and how many more of `count` there are."""
    shown = messages[:SHOWN_MAX]
    names = [f"{one.seq} ({one.subject}, stored {_moment(one.stored)}" for one in shown]
    for at, one in enumerate(shown):
        if one.delivered is not None:
            names[at] += f", delivered {_span(max(now - one.delivered, 0))} ago"
        names[at] += ")"
    more = count - len(shown)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")


def _moment(ns: int) -> str:
    """A time to the second: "2026-01-31 12:00:00 UTC"."""
    return time_text(ns)[:19].replace("T", " ") + " UTC"


def _span(ns: int) -> str:
    return shown_duration(ns / SECOND)
