"""Offsets: where a read begins and ends, as options say it and as the checkpoint keeps it.

In a checkpoint an offset is stored as a JSON object with one entry per stream:

    {"ORDERS": {"next": 1042, "created": "2026-01-02T03:04:05.678901234Z"}}

`next` is the first sequence that was not read. `created` is the stream's creation time: a stream
that was deleted and made anew under the same name has another one. `end`, where it is there, is the
first sequence that the stream did not have yet: it says how much waited when the offset was taken,
and so how much is lost if the stream is then deleted.

Options say it as words, as JSON of sequences (``{"ORDERS": 17}``: the first to be read, and as an
end the first not to be read; -2 is the earliest, -1 the latest), or by time.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any

from slipstream.errors import ConfigError
from slipstream.spark.options import SourceOptions
from slipstream.spark.planning import StreamView
from slipstream.wire import subjects as wire_subjects

EARLIEST = -2
LATEST = -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST, "new": LATEST}

Offset = dict[str, dict[str, Any]]


def entry(view: StreamView, sequence: int) -> dict[str, Any]:
    """The offset of one stream."""
    found = {"next": sequence, "created": view.created}
    return {**found, "end": view.next} if view.next > sequence else found


def check_source(options: SourceOptions, *, streaming: bool = False) -> None:
    """Raise `ConfigError` for what can be seen to be wrong without a server."""
    if options.stream and options.subscribe_pattern:
        raise ConfigError("jetstream: take one of the options stream and subscribePattern")
    if not options.streams and not options.subscribe_pattern:
        raise ConfigError(
            "jetstream: the option stream is missing; it names the stream to read, or several "
            "as 'A,B'; or give subscribePattern, a regular expression for their names"
        )
    if options.subscribe_pattern:
        try:
            re.compile(options.subscribe_pattern)
        except re.error as error:
            raise ConfigError(
                f"jetstream: option subscribePattern is {options.subscribe_pattern!r}, which is no "
                f"regular expression: {error}"
            ) from None
    for subject in options.subject_list:
        if not wire_subjects.is_pattern(subject.encode()):
            raise ConfigError(
                f"jetstream: option subjects has {subject!r}, which is no subject filter: tokens "
                "with dots between them, * for any token, > for all that follow at the end"
            )
    if streaming and (options.ending_offsets or options.ending_timestamp):
        raise ConfigError(
            "jetstream: endingOffsets and endingTimestamp end a batch read; a streaming query ends "
            "with Trigger.AvailableNow, or is stopped"
        )
    for kind in ("starting", "ending"):
        if getattr(options, f"{kind}_offsets") and getattr(options, f"{kind}_timestamp"):
            raise ConfigError(f"jetstream: take one of {kind}Offsets and {kind}Timestamp")
    _ = options.max_trigger_delay_seconds
    for kind in ("starting", "ending"):
        for stream in options.streams or [""]:
            _wanted(options, kind, stream)


async def starting(options: SourceOptions, view: StreamView, default: int) -> int:
    """The first sequence to be read."""
    wanted = _wanted(options, "starting", view.name)
    return await _resolve(view, default if wanted is None else wanted)


async def ending(options: SourceOptions, view: StreamView) -> int:
    """The first sequence not to be read any more."""
    wanted = _wanted(options, "ending", view.name)
    return min(await _resolve(view, LATEST if wanted is None else wanted), view.next)


async def _resolve(view: StreamView, wanted: "int | datetime") -> int:
    if isinstance(wanted, datetime):
        return await view.sequence_at(wanted)
    if wanted == EARLIEST:
        return max(view.first, 1)
    return view.next if wanted == LATEST else wanted


def _wanted(options: SourceOptions, kind: str, stream: str) -> "int | datetime | None":
    moment = getattr(options, f"{kind}_timestamp")
    if moment:
        found = _given_for(stream, f"{kind}Timestamp", moment, options)
        return None if found is None else parse_time(f"{kind}Timestamp", found)
    text = getattr(options, f"{kind}_offsets")
    name = f"{kind}Offsets"
    if not text:
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if not text.startswith("{"):
        raise ConfigError(
            f"jetstream: option {name} is {text!r}; it is earliest, latest, new, or JSON of "
            'sequences as {"ORDERS": 17}'
        )
    sequence = _given_for(stream, name, text, options)
    if sequence is None:
        return None
    if isinstance(sequence, dict):
        sequence = sequence.get("next")  # an offset copied from a checkpoint or from progress
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < EARLIEST:
        raise ConfigError(f"jetstream: option {name} gives {sequence!r} for {stream}: no sequence")
    return sequence


def _given_for(stream: str, name: str, text: str, options: SourceOptions) -> Any:
    """What an option says for a stream; None if it speaks of others only."""
    if not text.startswith("{"):
        return text
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"jetstream: option {name} is no JSON: {error}") from None
    unknown = set(found) - set(options.streams)
    if unknown and not options.subscribe_pattern:
        raise ConfigError(
            f"jetstream: option {name} speaks of {', '.join(sorted(unknown))}, and the option "
            f"stream of {', '.join(options.streams)}"
        )
    return found.get(stream)


def parse_time(name: str, value: Any) -> datetime:
    """A time given as ISO 8601, or as milliseconds since the epoch as Kafka's source has it."""
    try:
        if isinstance(value, int) or str(value).isdigit():
            return datetime.fromtimestamp(int(value) / 1000, UTC)
        moment = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"jetstream: option {name} is {value!r}: neither ISO 8601 nor milliseconds since the "
            "epoch"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
