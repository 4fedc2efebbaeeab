"""How streams look in responses (docs/protocol/streams.md#info-and-state)."""

from typing import TYPE_CHECKING

from slipstream.engine.protocol.group import cluster_info
from slipstream.engine.protocol.options import shown_metadata
from slipstream.engine.sourcing.inflow import inflow_info
from slipstream.engine.stream.stream import Stream
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamInfo, StreamState

SUBJECTS_PER_PAGE = 100_000


def first_seq(stream: Stream) -> int:
    """The first sequence, or where the next message goes. A stream that never had a message shows
    0, unless it was made with a `first_seq` or purged since the server started."""
    return stream.log.first_seq if stream.log.last_seq or stream.shows_front else 0


def stream_state(stream: Stream) -> "StreamState":
    """Counts, sequences and times."""
    log = stream.log
    state: StreamState = {
        "messages": log.messages,
        "bytes": log.bytes,
        "first_seq": first_seq(stream),
        "first_ts": time_text(log.first_ts),
        "last_seq": log.last_seq,
        "last_ts": time_text(log.last_ts),
    }
    if log.subjects.live:
        state["num_subjects"] = log.subjects.live
    if log.num_deleted:
        state["num_deleted"] = log.num_deleted
    if log.lost.sequences:
        state["lost"] = {"msgs": log.lost.sequences, "bytes": log.lost.bytes}
    state["consumer_count"] = len(stream.consumers)
    return state


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
