"""Why a consumer does, or does not, deliver: as data, and in one sentence.

A consumer delivers when it has work (a message to deliver), room (not too many out) and somebody
who takes it. `explain` looks at these in the order in which the consumer itself does and names the
first that is missing; where several are, the others follow in `reasons`. Times in ns.
"""

from dataclasses import dataclass, field
from typing import Any

from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.consumer.redelivery import redeliverable
from slipstream.engine.stream.stream import Stream
from slipstream.model.durations import duration_text
from slipstream.model.times import time_text

SHOWN_MAX = 10  # messages that are named one by one


@dataclass(slots=True)
class Reason:
    """One thing that keeps a consumer from delivering; `facts` depend on `code`."""

    code: str
    sentence: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Explanation:
    """Whether a consumer can deliver now, and why not."""

    delivers: bool
    sentence: str
    reasons: list[Reason]
    exhausted: list[int]  # messages that were delivered as often as they may be
    num_pending: int
    num_ack_pending: int
    num_waiting: int
    refuses_requests: bool  # as many pull requests wait as may
    dead_letters: dict[str, Any]  # {} where none are configured

    def as_json(self) -> dict[str, Any]:
        """For an answer of the API or of monitoring."""
        return {
            "delivers": self.delivers,
            "sentence": self.sentence,
            "reasons": [
                {"code": reason.code, "sentence": reason.sentence, **reason.facts}
                for reason in self.reasons
            ],
            "exhausted": self.exhausted[:SHOWN_MAX],
            "num_exhausted": len(self.exhausted),
            "num_pending": self.num_pending,
            "num_ack_pending": self.num_ack_pending,
            "num_waiting": self.num_waiting,
            "refuses_requests": self.refuses_requests,
            "dead_letters": self.dead_letters,
        }


def explain(consumer: Consumer) -> Explanation:
    """Why `consumer` delivers or not, as things are."""
    consumer.catch_up()
    again = redeliverable(consumer)
    found = [_paused(consumer), _nobody(consumer)]
    if not again:
        found += [_nothing(consumer), _full(consumer), _not_durable(consumer), _replay(consumer)]
    reasons = [reason for reason in found if reason is not None]
    delivery = consumer.delivery
    waiting = delivery.num_waiting if isinstance(delivery, PullDelivery) else 0
    refuses = 0 < consumer.config.max_waiting <= waiting
    exhausted = _exhausted(consumer)
    if reasons:
        sentence = " ".join(reason.sentence for reason in reasons)
    else:
        sentence = f"It delivers: {again + consumer.num_pending} messages are ready to go."
    if exhausted:
        sentence += f" {_count(exhausted, 'message')} reached max_deliver: {_some(exhausted)}."
    if refuses:
        sentence += f" max_waiting of {waiting} is reached: more pull requests are refused."
    dead_letters = _dead_letters(consumer)
    if dead_letters and dead_letters["waiting"]:
        number = dead_letters["waiting"]
        who = "1 message waits" if number == 1 else f"{number} messages wait"
        sentence += f" {who} to become a dead letter"
        if dead_letters["problem"]:
            sentence += f", and cannot: {dead_letters['problem']}"
        sentence += "."
    return Explanation(
        not reasons,
        sentence,
        reasons,
        exhausted,
        consumer.num_pending,
        len(consumer.pending),
        waiting,
        refuses,
        dead_letters,
    )


def _dead_letters(consumer: Consumer) -> dict[str, Any]:
    """Where messages go that are given up, how many are there, and which wait for it."""
    letters = consumer.letters
    subject = consumer.config.dead_letter
    if letters is None or (not subject and not letters.dying):
        return {}
    stream: Stream | None = consumer.stream.js.stream_of(subject) if subject else None
    waiting = sorted(letters.dying)
    return {
        "subject": subject,
        "stream": stream.name if stream is not None else "",
        "stored": stream.log.count((_mapped(stream, subject),), 0) if stream is not None else 0,
        "waiting": len(waiting),
        "sequences": waiting[:SHOWN_MAX],
        "problem": letters.problem,
    }


def _mapped(stream: Stream, subject: str) -> bytes:
    """The subject under which a stream stores it."""
    raw = subject.encode()
    return raw if stream.transform is None else bytes(stream.transform.map(raw))


def _exhausted(consumer: Consumer) -> list[int]:
    """Messages that are not out any more, but were never acknowledged."""
    if consumer.max_deliver <= 0:
        return []
    return sorted(
        seq
        for seq, count in consumer.redelivered.items()
        if count >= consumer.max_deliver and seq not in consumer.pending
    )


def _paused(consumer: Consumer) -> Reason | None:
    if not consumer.paused_until:
        return None
    left = consumer.paused_until - consumer.clock.now
    text = f"It is paused until {time_text(consumer.paused_until)}, {duration_text(left)} from now."
    return Reason("paused", text, {"until": consumer.paused_until, "remaining": left})


def _nobody(consumer: Consumer) -> Reason | None:
    """Nobody takes a message: no request, no interest, or whoever there is does not keep up."""
    delivery = consumer.delivery
    if isinstance(delivery, PullDelivery):
        delivery.drop_uninterested()
        if delivery.is_ready():
            return None
        if delivery.waiting and delivery.groups is not None:
            text = delivery.groups.why_not()
            return Reason("priority_group", text, {"num_waiting": delivery.num_waiting})
        if delivery.num_waiting:
            text = "Those who wait do not keep up with what was sent to them already."
            return Reason("slow_client", text, {"num_waiting": delivery.num_waiting})
        idle = duration_text(max(consumer.clock.now - consumer.last_activity, 0))
        text = f"Nobody asks: no pull request is waiting, and nothing was heard for {idle}."
        return Reason("no_request", text, {"last_activity": consumer.last_activity})
    if not isinstance(delivery, PushDelivery) or delivery.is_ready():
        return None
    subject = consumer.config.deliver_subject
    facts: dict[str, Any] = {
        "deliver_subject": subject,
        "deliver_group": consumer.config.deliver_group,
    }
    if not delivery.active:
        group = consumer.config.deliver_group
        member = f" as a member of the queue group {group}" if group else ""
        return Reason("no_interest", f"Nobody listens on {subject}{member}.", facts)
    if delivery.is_stalled():
        text = f"Who listens on {subject} has not answered the last flow control request."
        return Reason("flow_control", text, facts)
    if delivery.free_at > consumer.clock.now:
        text = f"The rate limit of {consumer.config.rate_limit_bps} bits per second is used up."
        return Reason("rate_limit", text, {**facts, "until": delivery.free_at})
    text = f"Who listens on {subject} does not keep up with what was sent already."
    return Reason("slow_client", text, facts)


def _nothing(consumer: Consumer) -> Reason | None:
    """There is nothing to deliver now; perhaps later."""
    if consumer.num_pending:
        return None
    when = consumer.pending.next_deadline()
    if consumer.pending.size and when:
        out = consumer.pending.sequences()
        kind = "backoff" if consumer.backoff else "ack_wait"
        text = (
            f"All that match were delivered; {_count(out, 'message')} wait for acknowledgement "
            f"({_some(out)}), the first is delivered again at {time_text(when)} ({kind})."
        )
        return Reason("ack_wait", text, {"until": when, "sequences": out[:SHOWN_MAX]})
    filters = [one.decode("utf-8", "replace") for one in consumer.filters]
    if consumer.filters and not consumer.log.count(consumer.filters, 0):
        text = f"No stored subject matches {', '.join(filters)}."
        return Reason("no_match", text, {"filters": filters})
    if consumer.next_seq > consumer.log.last_seq + 1:
        text = f"It begins at sequence {consumer.next_seq}; the last is {consumer.log.last_seq}."
        return Reason("starts_later", text, {"next_seq": consumer.next_seq})
    if consumer.pending.size:
        text = "All that match were delivered; what is out is to become dead letters."
        return Reason("dead_letters", text)
    text = "Nothing is pending: everything that matches was delivered and acknowledged."
    if consumer.config.ack_policy == "none":
        text = "Nothing is pending: everything that matches was delivered."
    return Reason("nothing_pending", text)


def _full(consumer: Consumer) -> Reason | None:
    if consumer.has_room() or not consumer.num_pending:
        return None
    out = consumer.pending.sequences()
    place = consumer.pending.first()
    since = min(
        (consumer.pending.ts(consumer.pending.find(seq)) for seq in out[:SHOWN_MAX]),
        default=consumer.pending.ts(place),
    )
    text = (
        f"max_ack_pending of {consumer.max_ack_pending} is reached: {_some(out)} are not "
        f"acknowledged, the oldest delivered {duration_text(consumer.clock.now - since)} ago; "
        f"{consumer.num_pending} more wait behind them."
    )
    facts = {"max_ack_pending": consumer.max_ack_pending, "since": since}
    return Reason("max_ack_pending", text, {**facts, "sequences": out[:SHOWN_MAX]})


def _not_durable(consumer: Consumer) -> Reason | None:
    """What is to come is on its way to the disk."""
    stream = consumer.stream
    if not consumer.num_pending or consumer.next_seq <= stream.visible_seq:
        return None
    if stream.failed:
        text = f"The stream's storage has failed: {stream.failed}."
        return Reason("storage_failed", text, {"error": stream.failed})
    text = "What is pending is not on disk yet; it is delivered as soon as it is."
    return Reason("syncing", text, {"durable_seq": consumer.log.durable_seq})


def _replay(consumer: Consumer) -> Reason | None:
    if consumer.replay_at <= consumer.clock.now or not consumer.num_pending:
        return None
    text = f"It replays at the original pace: the next one is due {time_text(consumer.replay_at)}."
    return Reason("replay", text, {"until": consumer.replay_at})


def _count(found: list[int], what: str) -> str:
    return f"1 {what}" if len(found) == 1 else f"{len(found)} {what}s"


def _some(found: list[int]) -> str:
    shown = ", ".join(str(seq) for seq in found[:SHOWN_MAX])
    return shown if len(found) <= SHOWN_MAX else f"{shown} and {len(found) - SHOWN_MAX} more"
