"""How streams are shown: the properties of one, and tables of many."""

from collections.abc import Sequence

from slipstream.cli.cluster.shown import cluster_section, servers_text
from slipstream.cli.output import properties, table
from slipstream.cli.values import (
    show_duration,
    show_limit,
    show_since,
    show_size,
    show_time,
)
from slipstream.client.jetstream import ConsumerConfig, StreamConfig, StreamInfo

Pairs = list[tuple[str, str]]
RETENTION_TEXT = {"limits": "Limits", "interest": "Interest", "workqueue": "WorkQueue"}


def show_stream(info: StreamInfo, title: str = "") -> None:
    """The properties of a stream, as `nats stream info` has them."""
    name = info.config.name
    head = title or f"Information for Stream {name} created {show_time(info.created)}"
    cluster = cluster_section(info.cluster)
    properties(head, [*_config_sections(info.config), cluster, ("State", _state(info))])


def show_config(config: StreamConfig, title: str) -> None:
    """A configuration alone."""
    properties(title, _config_sections(config))


def _config_sections(config: StreamConfig) -> list[tuple[str, Pairs]]:
    return [("", _identity(config)), ("Options", _options(config)), ("Limits", _limits(config))]


def _identity(config: StreamConfig) -> Pairs:
    pairs: Pairs = []
    if config.description:
        pairs.append(("Description", config.description))
    if config.subjects:
        pairs.append(("Subjects", ", ".join(config.subjects)))
    pairs.append(("Replicas", str(config.num_replicas)))
    pairs.append(("Storage", config.storage.title()))
    if config.compression != "none":
        pairs.append(("Compression", "S2 Compression"))
    if config.mirror is not None:
        pairs.append(("Mirror", config.mirror.name))
    if config.sources:
        pairs.append(("Sources", ", ".join(source.name for source in config.sources)))
    if config.subject_transform is not None:
        change = config.subject_transform
        pairs.append(("Subject Transform", f"{change.src or '>'} to {change.dest}"))
    if config.republish is not None:
        again = config.republish
        kind = " (headers only)" if again.headers_only else ""
        pairs.append(("Republishing", f"{again.src or '>'} to {again.dest}{kind}"))
    return pairs


def _options(config: StreamConfig) -> Pairs:
    flags = {
        "Direct Get": config.allow_direct,
        "Mirror Direct Get": config.mirror_direct,
        "Allows Batch Publish": config.allow_atomic,
        "Allows Counters": config.allow_msg_counter,
        "Allows Msg Delete": not config.deny_delete,
        "Allows Per-Message TTL": config.allow_msg_ttl,
        "Allows Purge": not config.deny_purge,
        "Allows Rollups": config.allow_rollup_hdrs,
        "Allows Schedules": config.allow_msg_schedules,
        "Sealed": config.sealed,
    }
    rare = {"Mirror Direct Get", "Sealed"}
    pairs: Pairs = [
        ("Retention", RETENTION_TEXT.get(config.retention, config.retention)),
        ("Acknowledgments", _truth(not config.no_ack)),
        ("Discard Policy", config.discard.title()),
    ]
    if config.discard_new_per_subject:
        pairs.append(("Discard New Per Subject", "true"))
    if config.duplicate_window:
        pairs.append(("Duplicate Window", show_duration(config.duplicate_window)))
    pairs += [(label, _truth(on)) for label, on in flags.items() if on or label not in rare]
    if config.subject_delete_marker_ttl:
        pairs.append(("Delete Marker TTL", show_duration(config.subject_delete_marker_ttl)))
    return pairs


def _limits(config: StreamConfig) -> Pairs:
    sizes = (("Maximum Bytes", config.max_bytes), ("Maximum Message Size", config.max_msg_size))
    shown = {label: show_size(count) if count > 0 else "unlimited" for label, count in sizes}
    pairs: Pairs = [
        ("Maximum Messages", show_limit(config.max_msgs)),
        ("Maximum Per Subject", show_limit(config.max_msgs_per_subject)),
        ("Maximum Bytes", shown["Maximum Bytes"]),
        ("Maximum Age", show_duration(config.max_age) if config.max_age else "unlimited"),
        ("Maximum Message Size", shown["Maximum Message Size"]),
        ("Maximum Consumers", show_limit(config.max_consumers)),
    ]
    if config.consumer_limits is not None:
        bounds = config.consumer_limits
        if bounds.inactive_threshold:
            text = show_duration(bounds.inactive_threshold)
            pairs.append(("Consumer Inactive Threshold", text))
        if bounds.max_ack_pending > 0:
            pairs.append(("Consumer Max Ack Pending", f"{bounds.max_ack_pending:,}"))
    pairs += [(f"Metadata {key}", value) for key, value in own_metadata(config)]
    return pairs


def _state(info: StreamInfo) -> Pairs:
    state = info.state
    first, last = f"{state.first_seq:,}", f"{state.last_seq:,}"
    if state.messages:
        first += f" @ {show_time(state.first_ts)}"
    if state.last_seq and state.last_ts is not None and state.last_ts.year >= 1970:
        last += f" @ {show_time(state.last_ts)}"
    pairs: Pairs = [
        ("Messages", f"{state.messages:,}"),
        ("Bytes", show_size(state.bytes)),
        ("First Sequence", first),
        ("Last Sequence", last),
        ("Active Consumers", str(state.consumer_count)),
    ]
    if state.num_deleted:
        pairs.append(("Deleted Messages", f"{state.num_deleted:,}"))
    if state.num_subjects:
        pairs.append(("Number of Subjects", f"{state.num_subjects:,}"))
    if state.lost is not None and state.lost.msgs:
        text = f"{len(state.lost.msgs):,} messages, {show_size(state.lost.bytes)}"
        pairs.append(("Lost Messages", text))
    if info.alternates and len(info.alternates) > 1:
        pairs.append(("Alternates", "\n".join(one.name for one in info.alternates)))
    return pairs


def own_metadata(config: "StreamConfig | ConsumerConfig") -> Pairs:
    """Metadata without what the server keeps there for itself."""
    return [(k, v) for k, v in sorted(config.metadata.items()) if not k.startswith("_nats.")]


def _truth(on: bool) -> str:
    return "true" if on else "false"


def list_streams(infos: Sequence[StreamInfo]) -> None:
    """The table of `stream ls`."""
    table(
        "Streams",
        ("Name", "Description", "Created", "Messages", "Size", "Last Message"),
        [
            (
                info.name,
                info.config.description,
                show_time(info.created),
                f"{info.state.messages:,}",
                show_size(info.state.bytes),
                show_since(info.state.last_ts if info.state.last_seq else None),
            )
            for info in infos
        ],
    )


def report_streams(infos: Sequence[StreamInfo], raw: bool = False) -> None:
    """The table of `stream report`; sizes in bytes if they are to be `raw`. In a cluster each
    stream's servers are named, the leader with a star."""
    columns = [
        "Stream",
        "Storage",
        "Placement",
        "Consumers",
        "Messages",
        "Bytes",
        "Lost",
        "Deleted",
    ]
    rows = [
        [
            info.name,
            info.config.storage.title(),
            info.cluster.name if info.cluster else "",
            str(info.state.consumer_count),
            f"{info.state.messages:,}",
            str(info.state.bytes) if raw else show_size(info.state.bytes),
            str(len(info.state.lost.msgs)) if info.state.lost else "0",
            f"{info.state.num_deleted:,}",
        ]
        for info in infos
    ]
    if any(info.cluster and info.cluster.name for info in infos):
        columns.append("Replicas")
        for row, info in zip(rows, infos, strict=True):
            row.append(servers_text(info.cluster))
    table("Stream Report", columns, rows)
