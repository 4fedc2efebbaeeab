"""How streams look in responses (docs/protocol/streams.md#info-and-state)."""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.group import cluster_info
from slipstream.engine.protocol.options import shown_metadata
from slipstream.engine.sourcing.inflow import inflow_info
from slipstream.engine.stream.stream import Stream
from slipstream.log.counts import Counts
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamInfo, StreamState

SUBJECTS_PER_PAGE = 100_000


def first_seq(stream: Stream) -> int:
    """The first sequence, or where the next message goes."""
    return _shown_first(stream, stream.log.counts())


def _shown_first(stream: Stream, counts: Counts) -> int:
    """A stream that never had a message shows 0, unless it was made with a `first_seq` or purged
    since the server started."""
    return counts.first_seq if counts.last_seq or stream.shows_front else 0


def stream_state(stream: Stream) -> "StreamState":
    """Counts, sequences and times; where a stream has failed, or the disk takes nothing, those that
    are durable."""
    log = stream.log
    counts = log.counts()
    first_ts = log.first_ts
    if _shows_durable(stream):
        assert log.durable_counts is not None
        counts = log.durable_counts
        if not counts.messages or counts.first_seq != log.first_seq:
            first_ts = 0
    state: StreamState = {
        "messages": counts.messages,
        "bytes": counts.bytes,
        "first_seq": _shown_first(stream, counts),
        "first_ts": time_text(first_ts),
        "last_seq": counts.last_seq,
        "last_ts": time_text(counts.last_ts),
    }
    if counts.subjects:
        state["num_subjects"] = counts.subjects
    if counts.deleted:
        state["num_deleted"] = counts.deleted
    if log.lost.sequences:
        state["lost"] = {"msgs": log.lost.sequences, "bytes": log.lost.bytes}
    state["consumer_count"] = len(stream.consumers)
    return state


def _shows_durable(stream: Stream) -> bool:
    """Whether what is not durable is not shown either, and not waited for."""
    is_held = bool(stream.failed) or (stream.js.is_stuck and not stream.ack_at_once)
    return is_held and stream.log.durable_counts is not None


def subject_counts(stream: Stream, pattern: str) -> dict[str, int]:
    """How many messages there are on each subject that matches; where a stream has failed, or the
    disk takes nothing, without those that are not durable."""
    log = stream.log
    counts = log.subject_counts(pattern.encode())
    if not _shows_durable(stream):
        return counts
    for seq in log.stored_after(log.durable_seq):
        name = log.subject_of(seq).decode("utf-8", "replace")
        if name in counts:
            counts[name] -= 1
    return {name: count for name, count in counts.items() if count}


def shown_config(stream: Stream, with_version: bool) -> dict[str, object]:
    """The configuration with the metadata that the server adds."""
    config = stream.config.emit()
    if with_version:
        config["metadata"] = shown_metadata(config["metadata"])
    return config


def stream_info(stream: Stream, with_version: bool = True) -> "StreamInfo":
    """StreamInfo."""
    info: StreamInfo = {
        "config": shown_config(stream, with_version),
        "created": time_text(stream.created),
        "state": stream_state(stream),
    }
    if stream.js.domain:
        info["domain"] = stream.js.domain
    engine = stream.js.engine
    if engine.group is not None:
        is_kept = stream.store is not None
        info["cluster"] = cluster_info(engine.group, engine.started, is_kept)
    info.update(inflow_info(stream))
    info["ts"] = time_text(stream.clock.now)
    return info
