"""Answers that show streams and consumers: made now, they leave once all that they show is durable.

So nobody is told of a message, a consumer or an acknowledgement that a crash, or another server
that leads a group, takes back. Where everything is durable the answer leaves at once; else with the
commit that is next anyway, or with one that a consumer's position has to itself. What the disk has
refused is not waited for: `stream_info` shows of a stream that has failed, and of all while the
disk takes nothing, what is durable, and a consumer is shown where it stands.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from slipstream.engine.api.dispatch import Covered, Done, Fields, StuckError, Wait, all_of

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.stream.owner import Owner
    from slipstream.engine.stream.stream import Stream


def covered(
    js: "Owner",
    fields: Fields,
    streams: "Iterable[Stream]" = (),
    consumers: "Iterable[Consumer]" = (),
) -> Fields | Covered:
    """An answer that shows which streams and consumers there are, their configurations, and the
    state of those that are named."""
    if js.is_stuck:
        return fields
    waits: list[Wait] = [] if js.is_kept else [js.when_kept]
    waits += [stream.when_settled for stream in streams if not stream.is_settled]
    waits += [one.life.when_shown for one in consumers if not one.life.is_shown]
    if not waits:
        return fields

    def wait(done: Done) -> None:
        def settled(error: Exception | None) -> None:
            is_late = error is None and js.is_stuck  # and `fields` show what is not durable
            done(StuckError("the disk takes nothing more for now") if is_late else error)

        js.unless_stuck(all_of(*waits))(settled)

    return Covered(wait, fields)


def covered_stream(stream: "Stream", fields: Fields) -> Fields | Covered:
    """An answer that shows the state of one stream. Nothing of one in memory is to be durable."""
    return covered(stream.js, fields, [stream]) if stream.store is not None else fields


def covered_consumer(consumer: "Consumer", fields: Fields) -> Fields | Covered:
    """An answer that shows the state of one consumer, and how much its stream has for it."""
    stream = consumer.stream
    if stream.store is None:
        return fields
    return covered(stream.js, fields, [stream], [consumer])
