"""What is a loss and what is a hole.

Streams have holes by right: deleted messages, older values of a subject, messages whose TTL ended,
work that was acknowledged. A loss is a message that the query had a claim to and that went before
it was read. It shows as this:

* the stream was made anew: its creation time is another one;
* the stream ends before the sequence that was reached: it was restored from something older;
* the front of the stream is after a sequence that is still to be read: messages expired, were
  pushed out by a limit, or were purged.

Where the front moves by right (work-queue and interest retention, a limit per subject, TTLs) the
last one is a hole, unless nothing at all is left and only a purge can have done that.
"""

import logging

import msgspec

from slipstream.errors import Error
from slipstream.model.infos import StreamInfo
from slipstream.model.times import datetime_text

log = logging.getLogger("slipstream.spark")


class DataLossError(Error):
    """Messages that were to be read are gone."""


def front_moves_by_right(info: StreamInfo) -> bool:
    """Whether messages at the stream's front go without being lost."""
    config = info.config
    if config.retention in ("workqueue", "interest") or config.allow_msg_ttl:
        return True
    return config.max_msgs_per_subject > 0 and bool(info.state.messages)


def is_another(info: StreamInfo, created: str) -> bool:
    """Whether this is not the stream that was created then."""
    now = datetime_text(info.created) if info.created is not None else ""
    return bool(created and now and now != created)


class Loss(msgspec.Struct, frozen=True):
    """What is lost, in words, and how many sequences that is."""

    text: str
    messages: int


class LossReport(msgspec.Struct, frozen=True):
    """What a task has found to be lost of its part, from sequence `start` on."""

    stream: str
    start: int
    messages: int


class LossReports:
    """What tasks have reported, each loss once: a task that is tried again reports it again."""

    def __init__(self) -> None:
        self._messages: dict[tuple[str, int], int] = {}

    def note(self, data: bytes) -> None:
        """Take in a report in JSON."""
        report = msgspec.json.decode(data, type=LossReport)
        key = report.stream, report.start
        self._messages[key] = max(report.messages, self._messages.get(key, 0))

    def total(self, stream: str) -> int:
        """Messages of a stream that were lost."""
        return sum(count for (name, _), count in self._messages.items() if name == stream)


def find_loss(info: StreamInfo, created: str, start: int, end: int) -> Loss | None:
    """What of the messages from `start` to before `end` is lost; None if nothing is.

    `end` is that of the stream that was created then, as far as it is known.
    """
    name = info.config.name
    if is_another(info, created):
        text = (
            f"stream {name} was deleted and made anew at {info.created} (the query knows the one "
            f"of {created}): what it has not read of the old one, from sequence {start} on, is gone"
        )
        return Loss(text, max(end - start, 0))
    if start > info.state.last_seq + 1:
        text = (
            f"stream {name} ends at {info.state.last_seq}, and the query has read up to "
            f"{start - 1}: an older state has replaced it"
        )
        return Loss(text, 0)
    gone = min(info.state.first_seq, end)
    if start < gone and not front_moves_by_right(info):
        text = (
            f"stream {name} begins at {info.state.first_seq}: {span(start, gone)} expired, were "
            "pushed out by a limit or were purged before they were read"
        )
        return Loss(text, gone - start)
    return None


def span(start: int, end: int) -> str:
    """Sequences `start` to before `end` in words."""
    count = end - start
    return f"sequences {start} to {end - 1} ({count})" if count > 1 else f"sequence {start}"


def tell(loss: Loss | None, fail: bool) -> None:
    """Raise `DataLossError` under `failOnDataLoss`, else log."""
    if loss is None:
        return
    if fail:
        raise DataLossError(
            f"{loss.text}. Set failOnDataLoss=false to go on with what is there, or start anew "
            "with another checkpoint"
        )
    log.warning("%s; going on, as failOnDataLoss is false", loss.text)
