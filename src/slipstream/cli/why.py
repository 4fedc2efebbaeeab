"""`slipstream why`: why a consumer does or does not get messages, in plain words.

Everything can be concluded from the public protocol, so it works on any server. A Slipstream server
is also asked for what only it knows: which messages used up their deliveries, who does not keep up.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.output import print_json, say, styled
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import show_duration, show_since, show_time
from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError
from slipstream.client.jetstream import ConsumerInfo, StoredMessage, StreamInfo
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.errors import MessageNotFoundError

app = new_app(group=False)

ONLY_THE_SERVER_KNOWS = {
    "slow_client", "flow_control", "rate_limit", "storage_failed", "replay", "priority_group",
}  # fmt: skip
WIDTH_MAX = 100
SHOWN_MAX = 5  # messages that are named one by one
SEARCHED_MAX = 50  # messages that are looked at for those that used up their deliveries


@dataclass(slots=True)
class Reason:
    """One thing that is known. `blocks` says that nothing is delivered as long as it holds."""

    code: str
    text: str
    blocks: bool = True


@command(app, "why")
async def why(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream")] = "",
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer")] = "",
) -> None:
    """Say why a consumer does or does not get messages."""
    try:
        async with jetstream() as js:
            stream, consumer = await choose_consumer(js, stream, consumer)
            info = await js.consumer_info(stream, consumer)
            found = await js.stream_info(stream)
            reasons = await explain(js, info, found)
    except PermissionsError as error:
        denied = f"The server forbids this user to ask: {error}"
        reasons, info = [Reason("permission", denied)], None
    if wants_json():
        print_json(
            {
                "stream": stream,
                "consumer": consumer,
                "delivers": not any(reason.blocks for reason in reasons),
                "reasons": [{"code": r.code, "text": r.text, "blocks": r.blocks} for r in reasons],
                "info": info,
            }
        )
        return
    blocked = [reason for reason in reasons if reason.blocks]
    verdict = "gets no messages now" if blocked else "gets messages"
    say(styled(f"Consumer {stream} > {consumer} {verdict}.", "1") + "\n")
    for reason in blocked + [reason for reason in reasons if not reason.blocks]:
        mark = styled("✗", "31") if reason.blocks else "·"
        first, *more = wrap(reason.text, min(get_terminal_size().columns, WIDTH_MAX) - 4)
        say("\n    ".join([f"  {mark} {first}", *more]))


async def explain(js: JetStream, info: ConsumerInfo, stream: StreamInfo) -> list[Reason]:
    """All that is known, the blocking reasons in the order in which to look at them."""
    reasons: list[Reason] = []
    reasons += _paused(info)
    reasons += await _pending(js, info, stream)
    reasons += await _outstanding(js, info)
    told = await told_by_server(js, info)
    reasons += _redelivery(info)
    reasons += await _exhausted(js, info, told)
    reasons += _dead_letters(info, told)
    reasons += _asking(info)
    reasons += [
        Reason(one["code"], one["sentence"])
        for one in told.get("reasons", [])
        if one["code"] in ONLY_THE_SERVER_KNOWS
    ]
    return reasons


async def told_by_server(js: JetStream, info: ConsumerInfo) -> dict[str, Any]:
    """What a Slipstream server says; nothing on other servers."""
    subject = f"$SLIPSTREAM.CONSUMER.EXPLAIN.{info.stream_name}.{info.name}"
    try:
        answer = await js.connection.request(subject, b"")
    except (NoRespondersError, TimeoutError):
        return {}
    found: dict[str, Any] = msgspec.json.decode(answer.data)
    return found


def _paused(info: ConsumerInfo) -> list[Reason]:
    if not info.paused:
        return []
    until = show_time(info.config.pause_until)
    left = show_duration(float(info.pause_remaining))  # type: ignore[arg-type]
    text = (
        f"It is paused until {until} (for {left}); "
        f"`slipstream consumer resume {info.stream_name} {info.name}` ends that."
    )
    return [Reason("paused", text)]


async def _pending(js: JetStream, info: ConsumerInfo, stream: StreamInfo) -> list[Reason]:
    """Whether there is anything left that it has not been given."""
    if info.num_pending:
        return [Reason("pending", f"{info.num_pending:,} messages wait to be delivered.", False)]
    out = info.num_ack_pending
    reasons = []
    if stream.state.messages == 0:
        text = f"Nothing is pending: stream {stream.name} holds no messages."
    elif out:
        text = f"Nothing new is pending: the last {out:,} messages are out for acknowledgement."
    else:
        text = (
            f"Nothing is pending: it has been given everything up to sequence "
            f"{info.delivered.stream_seq:,} of {stream.state.last_seq:,}."
        )
    reasons.append(Reason("nothing_pending", text))
    reasons += await _unmatched(js, info, stream)
    return reasons


async def _unmatched(js: JetStream, info: ConsumerInfo, stream: StreamInfo) -> list[Reason]:
    """Filters that match no stored subject."""
    if not stream.state.messages:
        return []
    reasons = []
    for pattern in info.config.filters:
        found = await js.stream_info(stream.name, subjects_filter=pattern)
        if not found.state.subjects:
            text = (
                f'Its filter "{pattern}" matches no subject that the stream holds; '
                f"`slipstream stream subjects {stream.name}` lists them."
            )
            reasons.append(Reason("filter_matches_nothing", text))
    if info.config.deliver_policy == "new" and not info.delivered.stream_seq:
        text = "It delivers only what is published after it was made (deliver policy new)."
        reasons.append(Reason("deliver_new", text))
    return reasons


async def _outstanding(js: JetStream, info: ConsumerInfo) -> list[Reason]:
    """Messages that were delivered and not acknowledged."""
    out, most = info.num_ack_pending, info.config.max_ack_pending
    if not out:
        return []
    first = info.ack_floor.stream_seq + 1
    names = _names(await _after(js, info, first, min(SHOWN_MAX, out)), out)
    if 0 < most <= out:
        wait = show_duration(_ack_wait(info))
        since = info.delivered.last_active
        text = (
            f"All {most:,} messages that may be out for acknowledgement are out (max_ack_pending) "
            f"since {show_time(since)}, {show_since(since)} ago. Nothing new is delivered until "
            f"one is acknowledged; after ack wait ({wait}) they come again. The oldest: {names}."
        )
        return [Reason("max_ack_pending", text)]
    text = f"{out:,} of {most:,} messages are out for acknowledgement. The oldest: {names}."
    return [Reason("outstanding", text if most > 0 else text.replace(" of -1", ""), False)]


def _ack_wait(info: ConsumerInfo) -> float:
    return float(info.config.ack_wait)  # type: ignore[arg-type]


async def _after(js: JetStream, info: ConsumerInfo, first: int, most: int) -> list[StoredMessage]:
    """The oldest messages from `first` on that it was given, by what its filters accept."""
    stream = await js.stream(info.stream_name)
    found: list[StoredMessage] = []
    seq = first
    while len(found) < most:
        following = []
        for pattern in info.config.filters or [">"]:
            try:
                following.append(await stream.get_next(seq, pattern, direct=False))
            except MessageNotFoundError:
                continue
        nearest = min(following, key=lambda message: message.sequence, default=None)
        if nearest is None or nearest.sequence > info.delivered.stream_seq:
            break
        found.append(nearest)
        seq = nearest.sequence + 1
    return found


def _names(messages: list[StoredMessage], count: int) -> str:
    """The first of them, and how many more of `count` there are."""
    shown = messages[:SHOWN_MAX]
    names = [f"{one.sequence} ({one.subject}, stored {show_time(one.time)})" for one in shown]
    more = count - len(shown)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")


def _redelivery(info: ConsumerInfo) -> list[Reason]:
    """What comes again, and when."""
    config = info.config
    if not info.num_redelivered or not info.num_ack_pending:
        return []
    wait = max([_ack_wait(info), *(float(step) for step in config.backoff)])  # type: ignore[arg-type]
    last = info.delivered.last_active
    left = wait - (datetime.now(UTC) - last).total_seconds() if last else wait
    until = datetime.now(UTC) + timedelta(seconds=max(left, 0.0))
    text = (
        f"{info.num_redelivered:,} messages were delivered more than once; unless they are "
        f"acknowledged they come again when their {'backoff' if config.backoff else 'ack wait'} "
        f"is over, at {show_time(until)} (in {show_duration(max(left, 0.0))}) at the latest."
    )
    return [Reason("redelivery", text, False)]


async def _exhausted(js: JetStream, info: ConsumerInfo, told: dict[str, Any]) -> list[Reason]:
    """Messages that are not delivered again, although nobody acknowledged them."""
    most, out = info.config.max_deliver, info.num_ack_pending
    count = told.get("num_exhausted", max(info.num_redelivered - out, 0))
    if most <= 0 or (not told and not count and (most > 1 or out)):
        return []
    # Above the ack floor are messages out for acknowledgement, used up, or acknowledged early.
    first = info.ack_floor.stream_seq + 1
    found = await _after(js, info, first, SEARCHED_MAX)
    if "exhausted" in told:
        found = [message for message in found if message.sequence in told["exhausted"]]
    elif not out and not count:  # a server that counts no redelivery where there is none
        count = len(found)
    if not count:
        return []
    exact = "exhausted" in told or len(found) == count
    text = (
        f"{count:,} messages have used up their {most} deliveries (max_deliver) and are not "
        f"delivered again: {'' if exact else 'they are among '}{_names(found, count)}. "
        "Without `ack` they stay in the stream; a new consumer gets them."
    )
    return [Reason("max_deliver", text, False)]


def _dead_letters(info: ConsumerInfo, told: dict[str, Any]) -> list[Reason]:
    """What was given up and stored elsewhere, and what should be and cannot."""
    found = told.get("dead_letters") or {}
    reasons = []
    waiting, stored = found.get("waiting", 0), found.get("stored", 0)
    if waiting:
        sequences = ", ".join(map(str, found["sequences"][:SHOWN_MAX]))
        more = f" and {waiting - SHOWN_MAX:,} more" if waiting > SHOWN_MAX else ""
        cause = f": {found['problem']}" if found["problem"] else ""
        text = (
            f"{waiting:,} messages wait to be stored as dead letters ({sequences}{more}){cause}. "
            "They take room of max_ack_pending until they are, and are offered again each second."
        )
        reasons.append(Reason("dead_letters_wait", text, waiting >= info.config.max_ack_pending))
    if stored:
        text = (
            f"{stored:,} dead letters are stored under {found['subject']} in stream "
            f"{found['stream']}; `slipstream consumer dead-letters ls {info.stream_name} "
            f"{info.name}` lists those of this consumer."
        )
        reasons.append(Reason("dead_letters", text, False))
    return reasons


def _asking(info: ConsumerInfo) -> list[Reason]:
    """Whether anybody wants messages."""
    config = info.config
    if config.deliver_subject:
        if info.push_bound:
            return []
        group = f' in queue group "{config.deliver_group}"' if config.deliver_group else ""
        text = f'Nobody listens on its deliver subject "{config.deliver_subject}"{group}.'
        return [Reason("no_interest", text)]
    if info.num_waiting == 0:
        text = (
            "Nobody asks for messages at the moment: no pull request waits "
            f"(last delivery {show_since(info.delivered.last_active)} ago)."
        ).replace("never ago", "never")
        return [Reason("nobody_asks", text)]
    if 0 < config.max_waiting <= info.num_waiting:
        text = (
            f"{info.num_waiting:,} pull requests wait, as many as may (max_waiting); "
            "further ones are refused with 409."
        )
        return [Reason("max_waiting", text, False)]
    return [Reason("waiting", f"{info.num_waiting:,} pull requests wait.", False)]
