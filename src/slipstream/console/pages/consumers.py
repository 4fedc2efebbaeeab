"""Consumers: who lags, why one is silent, and what can be done about it."""

from datetime import UTC, datetime, timedelta

import msgspec
import typer
from starlette.requests import Request
from starlette.responses import Response

from slipstream.cli.values import duration, show_duration, show_time
from slipstream.client.jetstream import (
    Consumer,
    ConsumerConfig,
    ConsumerInfo,
    DeadLetter,
    StoredMessage,
    Stream,
)
from slipstream.client.jetstream.errors import MessageNotFoundError, StreamNotFoundError
from slipstream.client.jetstream.why import explain_consumer
from slipstream.console import reading
from slipstream.console.pages.messages import Shown, moment, shown
from slipstream.console.render import segment
from slipstream.console.visit import FormError, Visit, whole_number
from slipstream.model.header_names import NATS_EXPECTED_PREFIX, NATS_MSG_ID
from slipstream.model.why import Facts

CONSUMERS_PER_PAGE = 50
LAGGARDS_MAX = 100
LETTERS_MAX = 50


async def laggards(request: Request) -> Response:
    """The consumers of all streams, those with the most waiting first."""
    visit = Visit(request)
    look = await visit.sampler.fresh()
    wanted = visit.asked("q")
    found = [
        one for one in look.consumers if wanted.lower() in f"{one.stream_name} {one.name}".lower()
    ]
    found.sort(key=lambda one: (-one.num_pending, -one.num_ack_pending, one.name))
    return visit.page(
        "consumers.html",
        look=look,
        consumers=found[:LAGGARDS_MAX],
        total=len(found),
        history=visit.sampler.history,
        wanted=wanted,
    )


async def of_stream(request: Request) -> Response:
    """The consumers of one stream, a page at a time."""
    visit = Visit(request)
    name, wanted, at = visit.path("stream"), visit.asked("q"), visit.asked_number("at")
    info = await visit.js.stream_info(name)
    if wanted:
        found, total = await _named(visit, name, wanted, at)
    else:
        answer = await visit.js.api.request(f"CONSUMER.LIST.{name}", {"offset": at})
        page = (answer.get("consumers") or [])[:CONSUMERS_PER_PAGE]
        found = [ConsumerInfo.from_wire(one) for one in page]
        total = int(answer.get("total", len(found)))
    return visit.page(
        "stream_consumers.html",
        info=info,
        tab="consumers",
        consumers=found,
        at=at,
        total=total,
        per_page=CONSUMERS_PER_PAGE,
        history=visit.sampler.history,
        wanted=wanted,
    )


async def _named(visit: Visit, stream: str, wanted: str, at: int) -> tuple[list[ConsumerInfo], int]:
    """A page of the consumers whose names contain a text."""
    names = [
        name async for name in visit.js.consumer_names(stream) if wanted.lower() in name.lower()
    ]
    shown_names = sorted(names)[at : at + CONSUMERS_PER_PAGE]
    return [await visit.js.consumer_info(stream, name) for name in shown_names], len(names)


async def consumer(request: Request) -> Response:
    """One consumer: where it is, why it is silent, and what it gave up."""
    visit = Visit(request)
    stream, name = visit.path("stream"), visit.path("consumer")
    info = await visit.js.consumer_info(stream, name)
    of_it = await visit.js.stream(stream)
    explained = await explain_consumer(visit.js, info)
    facts, reasons = explained.facts, explained.reasons
    letters = await _stored_letters(visit, info)
    return visit.page(
        "consumer.html",
        letters=letters[:LETTERS_MAX],
        has_more_letters=len(letters) > LETTERS_MAX,
        info=info,
        stream=of_it.cached_info,
        rate=visit.sampler.history.latest(f"out {stream} {name}"),
        blocked=[one for one in reasons if one.blocks],
        known=[one for one in reasons if not one.blocks],
        sections=_sections(info.config),
        dead=await _given_up(visit, of_it, facts),
        dead_total=facts.num_exhausted if facts.is_exhausted_exact else 0,
        document=msgspec.json.format(msgspec.json.encode(info.config.to_wire()), indent=2).decode(),
    )


async def _stored_letters(visit: Visit, info: ConsumerInfo) -> list[tuple[DeadLetter, Shown]]:
    """The oldest messages that are stored where the consumer's `dead_letter` leads."""
    found: list[tuple[DeadLetter, Shown]] = []
    if not info.config.dead_letter:
        return found
    try:
        async for letter in Consumer(visit.js, info).dead_letters():
            message = StoredMessage(
                stream=letter.stream,
                subject=letter.subject,
                sequence=letter.sequence,
                data=letter.data,
                headers=letter.headers,
                time=letter.stored,
            )
            found.append((letter, shown(message, visit.masks)))
            if len(found) > LETTERS_MAX:
                break
    except StreamNotFoundError:
        pass  # the reasons say so if anything waits for it
    return found


async def _given_up(visit: Visit, stream: Stream, facts: Facts) -> list[Shown]:
    """Messages that used up their deliveries, where it is known which did."""
    found = []
    for message in facts.exhausted if facts.is_exhausted_exact else []:
        try:
            found.append(shown(await stream.get_message(message.seq), visit.masks))
        except MessageNotFoundError:
            continue  # the stream has let it go since
    return found


def _sections(config: ConsumerConfig) -> list[tuple[str, list[tuple[str, str]]]]:
    """The configuration in words, in groups."""
    delivery = [
        ("Kind", "push" if config.deliver_subject else "pull"),
        ("Begins", _begin(config)),
        ("Filter", ", ".join(config.filters) or "every subject"),
        ("Replay", config.replay_policy),
    ]
    if config.deliver_subject:
        delivery.append(("Delivers to", config.deliver_subject))
    acks = [
        ("Ack policy", config.ack_policy),
        ("Ack wait", show_duration(config.ack_wait) if config.ack_wait else "none"),
        ("Deliveries at most", _bound(config.max_deliver)),
        ("Dead letters", config.dead_letter or "stay in the stream"),
        ("Backoff", ", ".join(show_duration(step) for step in config.backoff) or "none"),
        ("Out for acknowledgement at most", _bound(config.max_ack_pending)),
    ]
    idle = config.inactive_threshold
    life = [
        ("Kept", "until it is deleted" if config.durable_name else "while it is used"),
        ("Inactive threshold", show_duration(idle) if idle else "none"),
        ("Pull requests at most", _bound(config.max_waiting)),
        ("Storage", "memory" if config.mem_storage else "as the stream"),
    ]
    return [("Delivery", delivery), ("Acknowledgement", acks), ("Life", life)]


def _bound(count: int) -> str:
    return f"{count:,}" if count > 0 else "unlimited"


def _begin(config: ConsumerConfig) -> str:
    if config.deliver_policy == "by_start_sequence":
        return f"at sequence {config.opt_start_seq:,}"
    if config.deliver_policy == "by_start_time":
        return f"at {show_time(config.opt_start_time)}"
    texts = {
        "all": "with the first message",
        "last": "with the last message",
        "new": "with what is published after it was made",
        "last_per_subject": "with the last message of each subject",
    }
    return texts.get(config.deliver_policy, config.deliver_policy)


# -- changing ----------------------------------------------------------------------------------


def _address(visit: Visit) -> str:
    return f"/streams/{segment(visit.path('stream'))}/consumers/{segment(visit.path('consumer'))}"


async def pause(request: Request) -> Response:
    """Have it deliver nothing for a while."""
    visit = Visit(request)
    text = (await visit.form()).get("for", "")
    try:
        length = duration(text)
    except typer.BadParameter as error:
        raise FormError(f"Pause: {error.message}") from error
    if not length:
        raise FormError("Say for how long to pause, like 15m or 2h.")
    until = datetime.now(UTC) + timedelta(seconds=length)
    name = visit.path("consumer")
    await visit.js.pause_consumer(visit.path("stream"), name, until)
    return visit.go(_address(visit), f"Consumer {name} is paused until {show_time(until)}.")


async def resume(request: Request) -> Response:
    """Have it deliver again."""
    visit = Visit(request)
    name = visit.path("consumer")
    await visit.js.resume_consumer(visit.path("stream"), name)
    return visit.go(_address(visit), f"Consumer {name} delivers again.")


async def reset(request: Request) -> Response:
    """Have it go to a sequence or time of the stream, once its name was typed."""
    visit = Visit(request)
    name = visit.path("consumer")
    form = await visit.confirmed(name)
    to = form.get("to", "").strip()
    if not to:
        raise FormError("Say where it should go on: a sequence, or a time.")
    if to.replace(",", "").isdecimal():
        sequence = whole_number(to, "The sequence")
    else:
        stream = await visit.js.stream(visit.path("stream"))
        when = moment(to)
        sequence = await reading.at_time(stream, when)
        if not sequence:
            raise FormError(f"Nothing was stored at or after {show_time(when)}.")
    await visit.js.reset_consumer(visit.path("stream"), name, sequence)
    return visit.go(_address(visit), f"Consumer {name} goes on at sequence {sequence:,}.")


async def delete(request: Request) -> Response:
    """Remove it, once its name was typed."""
    visit = Visit(request)
    name = visit.path("consumer")
    await visit.confirmed(name)
    await visit.js.delete_consumer(visit.path("stream"), name)
    address = f"/streams/{segment(visit.path('stream'))}/consumers"
    return visit.go(address, f"Consumer {name} was deleted.")


async def resend(request: Request) -> Response:
    """Publish the message of a stored dead letter again, and remove that."""
    visit = Visit(request)
    name = visit.path("consumer")
    consumer = Consumer(visit.js, await visit.js.consumer_info(visit.path("stream"), name))
    sequence = whole_number(visit.path("sequence"), "A sequence")
    ack = await consumer.resend(await consumer.dead_letter(sequence))
    text = f"Dead letter {sequence:,} was sent again, as message {ack.sequence:,} of {ack.stream}."
    return visit.go(_address(visit), text)


async def send_again(request: Request) -> Response:
    """Publish a message that was given up once more, as it was; the stream gets a new one."""
    visit = Visit(request)
    stream = await visit.js.stream(visit.path("stream"))
    sequence = whole_number(visit.path("sequence"), "A sequence")
    message = await stream.get_message(sequence)
    headers = message.headers.copy()
    if NATS_MSG_ID in headers:
        del headers[NATS_MSG_ID]  # else the stream takes it for the one it has
    for name in [name for name in headers if name.startswith(NATS_EXPECTED_PREFIX)]:
        del headers[name]
    ack = await visit.js.publish(message.subject, message.data, headers=headers)
    text = f"Message {sequence:,} was sent again, as message {ack.sequence:,} of {ack.stream}."
    return visit.go(_address(visit), text)


ROUTES = (
    ("GET", "/consumers", laggards),
    ("GET", "/streams/{stream}/consumers", of_stream),
    ("GET", "/streams/{stream}/consumers/{consumer}", consumer),
    ("POST", "/streams/{stream}/consumers/{consumer}/pause", pause),
    ("POST", "/streams/{stream}/consumers/{consumer}/resume", resume),
    ("POST", "/streams/{stream}/consumers/{consumer}/reset", reset),
    ("POST", "/streams/{stream}/consumers/{consumer}/delete", delete),
    ("POST", "/streams/{stream}/consumers/{consumer}/again/{sequence}", send_again),
    ("POST", "/streams/{stream}/consumers/{consumer}/dead/{sequence}", resend),
)
