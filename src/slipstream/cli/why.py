"""`slipstream why`: why a consumer does or does not get messages, in plain words.

Everything can be concluded from the public protocol, so it works on any server. A Slipstream server
is also asked for what only it knows: which messages used up their deliveries, who does not keep up.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.choose import choose_consumer
from slipstream.cli.output import print_json, say
from slipstream.cli.session import command, jetstream, new_app, wants_json
from slipstream.cli.values import show_duration, show_since, show_time
from slipstream.client.errors import NoRespondersError, PermissionsError, TimeoutError
from slipstream.client.jetstream import ConsumerInfo, StreamInfo
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.errors import MessageNotFoundError

app = new_app(group=False)

ONLY_THE_SERVER_KNOWS = {"slow_client", "flow_control", "rate_limit", "storage_failed", "replay"}
OUT_SHOWN_MAX = 5  # messages that are out for acknowledgement, named one by one


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
    say(f"Consumer {stream} > {consumer} {verdict}.\n")
    for reason in blocked + [reason for reason in reasons if not reason.blocks]:
        say(f"  {'✗' if reason.blocks else '·'} {reason.text}")


async def explain(js: JetStream, info: ConsumerInfo, stream: StreamInfo) -> list[Reason]:
    """All that is known, the blocking reasons in the order in which to look at them."""
    reasons: list[Reason] = []
    reasons += _paused(info)
    reasons += await _pending(js, info, stream)
    reasons += await _outstanding(js, info)
    told = await _told_by_server(js, info)
    reasons += _redelivery(info, told)
    reasons += _asking(info)
    reasons += [
        Reason(one["code"], one["sentence"])
        for one in told.get("reasons", [])
        if one["code"] in ONLY_THE_SERVER_KNOWS
    ]
    return reasons


async def _told_by_server(js: JetStream, info: ConsumerInfo) -> dict[str, Any]:
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
    since = show_since(info.delivered.last_active)
    names = await _name_messages(js, info, first)
    if 0 < most <= out:
        wait = show_duration(_ack_wait(info))
        text = (
            f"All {most:,} messages that may be out for acknowledgement are out "
            f"(max_ack_pending), the last delivered {since} ago. Nothing new is delivered until "
            f"one is acknowledged, or ack wait ({wait}) is over. The oldest: {names}."
        )
        return [Reason("max_ack_pending", text)]
    text = f"{out:,} of {most:,} messages are out for acknowledgement. The oldest: {names}."
    return [Reason("outstanding", text if most > 0 else text.replace(" of -1", ""), False)]


def _ack_wait(info: ConsumerInfo) -> float:
    return float(info.config.ack_wait)  # type: ignore[arg-type]


async def _name_messages(js: JetStream, info: ConsumerInfo, first: int) -> str:
    """The oldest messages after the ack floor that the consumer's filters accept."""
    stream = await js.stream(info.stream_name)
    filters = info.config.filters or [">"]
    names: list[str] = []
    seq = first
    while len(names) < min(OUT_SHOWN_MAX, info.num_ack_pending):
        following = []
        for pattern in filters:
            try:
                following.append(await stream.get_next(seq, pattern, direct=False))
            except MessageNotFoundError:
                continue
        if not following:
            break
        nearest = min(following, key=lambda message: message.sequence)
        if nearest.sequence > info.delivered.stream_seq:
            break
        names.append(f"{nearest.sequence} ({nearest.subject}, stored {show_time(nearest.time)})")
        seq = nearest.sequence + 1
    more = info.num_ack_pending - len(names)
    return ", ".join(names) + (f" and {more:,} more" if names and more > 0 else "")


def _redelivery(info: ConsumerInfo, told: dict[str, Any]) -> list[Reason]:
    """What comes again, and what does not any more."""
    config = info.config
    reasons = []
    if info.num_redelivered and info.num_ack_pending:
        wait = max([_ack_wait(info), *(float(step) for step in config.backoff)])  # type: ignore[arg-type]
        last = info.delivered.last_active
        left = wait - (datetime.now(UTC) - last).total_seconds() if last else wait
        kind = "backoff" if config.backoff else "ack wait"
        text = (
            f"{info.num_redelivered:,} messages were delivered more than once; unless they are "
            f"acknowledged they come again when their {kind} is over, "
            f"in {show_duration(max(left, 0.0))} at the latest."
        )
        reasons.append(Reason("redelivery", text, False))
    given_up = told.get("num_exhausted", max(info.num_redelivered - info.num_ack_pending, 0))
    if config.max_deliver > 0 and given_up:
        which = ", ".join(str(seq) for seq in told.get("exhausted", []))
        text = (
            f"{given_up:,} messages have used up their {config.max_deliver} deliveries "
            "(max_deliver) and are not delivered again: "
            + (which or "the MAX_DELIVERIES advisories name them")
            + "."
        )
        reasons.append(Reason("max_deliver", text, False))
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
