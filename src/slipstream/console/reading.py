"""Pages of the messages that a stream holds, in either direction, without a consumer.

A stream with direct gets gives a page in one batch. Any other is asked for one message after the
other, which every server answers. What is read for a page has a bound, so that a filter that
matches nothing ends, and says from where to go on.
"""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

from slipstream.client.jetstream import Stream
from slipstream.client.jetstream.errors import MessageNotFoundError
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.console.bodies import Masks
from slipstream.console.query import Condition

PAGE_MESSAGES = 50
SEARCHED_MAX = 5000
ONE_BY_ONE_MAX = 500  # where the stream allows no direct gets
WINDOW_FACTOR = 8


@dataclass(slots=True)
class Page:
    """Messages in the order of the stream. `resume_at` is where a search has stopped, or 0."""

    messages: list[StoredMessage] = field(default_factory=list)
    searched: int = 0
    resume_at: int = 0


def _bound(stream: Stream) -> int:
    return SEARCHED_MAX if stream.config.allow_direct else ONE_BY_ONE_MAX


async def forward(
    stream: Stream, sequence: int, subject: str, count: int
) -> AsyncIterator[StoredMessage]:
    """Up to `count` messages on `subject` ("" for any) from `sequence` on."""
    sequence = max(sequence, 1)
    if stream.config.allow_direct:
        async for message in stream.get_batch(count, sequence=sequence, subject=subject or ">"):
            yield message
        return
    for _ in range(count):
        try:
            message = await stream.get_next(sequence, subject or ">", direct=False)
        except MessageNotFoundError:
            return
        yield message
        sequence = message.sequence + 1


async def from_sequence(
    stream: Stream,
    sequence: int,
    subject: str = "",
    where: list[Condition] | None = None,
    masks: Masks | None = None,
    count: int = PAGE_MESSAGES,
) -> Page:
    """The first messages from a sequence on that match."""
    page = Page()
    bound = _bound(stream) if where else count
    async for message in forward(stream, sequence, subject, bound):
        page.searched += 1
        if matches(message, where or [], masks or Masks()):
            page.messages.append(message)
        page.resume_at = message.sequence + 1
        if len(page.messages) >= count:
            return page
    if page.searched < bound:
        page.resume_at = 0
    return page


async def before(
    stream: Stream, sequence: int, first: int, subject: str = "", count: int = PAGE_MESSAGES
) -> Page:
    """The last messages below a sequence, of those on `subject`; `first` is the stream's first.

    A window before the sequence is read, and a larger one as long as it does not hold enough.
    """
    window, bound = count, _bound(stream)
    while True:
        start = max(sequence - window, first)
        page, found = Page(), deque[StoredMessage](maxlen=count)
        async for message in forward(stream, start, subject, bound):
            if message.sequence >= sequence:
                break
            page.searched += 1
            found.append(message)
        page.messages = list(found)
        if len(found) >= count or start <= first:
            return page
        window *= WINDOW_FACTOR


async def at_time(stream: Stream, when: datetime) -> int:
    """The sequence of the first message stored at or after a time; 0 if there is none."""
    try:
        if stream.config.allow_direct:
            async for message in stream.get_batch(1, start_time=when):
                return message.sequence
            return 0
        return await _search_time(stream, when)
    except MessageNotFoundError:
        return 0


async def _search_time(stream: Stream, when: datetime) -> int:
    """What `at_time` returns, found by halving: for streams that allow no direct gets."""
    state = (await stream.info()).state
    low, high = state.first_seq, state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        try:
            message = await stream.get_next(middle, direct=False)
        except MessageNotFoundError:
            high = middle
            continue
        if message.time is not None and message.time < when:
            low = message.sequence + 1
        else:
            high = middle
    return low if low <= state.last_seq else 0


def matches(message: StoredMessage, where: list[Condition], masks: Masks) -> bool:
    """Whether what may be seen of a message meets all conditions."""
    if not where:
        return True
    headers = masks.headers(message.headers)
    return any(
        all(condition.holds(headers, document) for condition in where)
        for document in masks.body(message.data).documents
    )
