"""How consumers are shown: the properties of one, and tables of many."""

from collections.abc import Mapping, Sequence

from slipstream.cli.cluster.shown import cluster_section
from slipstream.cli.output import properties, table
from slipstream.cli.stream.tables import own_metadata
from slipstream.cli.values import show_duration, show_limit, show_since, show_time
from slipstream.client.jetstream import ConsumerConfig, ConsumerInfo, StreamInfo
from slipstream.model.infos import SequenceInfo

Pairs = list[tuple[str, str]]


def show_consumer(info: ConsumerInfo, title: str = "") -> None:
    """The properties of a consumer, as `nats consumer info` has them."""
    head = title or (
        f"Information for Consumer {info.stream_name} > {info.name} "
        f"created {show_time(info.created)}"
    )
    cluster = cluster_section(info.cluster)
    sections = [("Configuration", _configuration(info)), cluster, ("State", _state(info))]
    properties(head, sections)


def show_consumer_state(info: ConsumerInfo) -> None:
    """How far a consumer is."""
    properties(f"State for Consumer {info.stream_name} > {info.name}", [("", _state(info))])


def _configuration(info: ConsumerInfo) -> Pairs:
    config = info.config
    pairs: Pairs = [("Name", info.name)]
    if config.description:
        pairs.append(("Description", config.description))
    if config.deliver_subject:
        pairs.append(("Delivery Subject", config.deliver_subject))
        if config.deliver_group:
            pairs.append(("Delivery Queue Group", config.deliver_group))
    else:
        pairs.append(("Pull Mode", "true"))
    filters = config.filters
    if filters:
        label = "Filter Subject" if len(filters) == 1 else "Filter Subjects"
        pairs.append((label, ", ".join(filters)))
    pairs.append(("Deliver Policy", _deliver_text(config)))
    pairs.append(("Ack Policy", config.ack_policy.title()))
    if config.ack_policy != "none":
        pairs.append(("Ack Wait", show_duration(config.ack_wait)))
    pairs.append(("Replay Policy", config.replay_policy.title()))
    if config.max_deliver != -1:
        pairs.append(("Maximum Deliveries", f"{config.max_deliver:,}"))
    if config.dead_letter:
        pairs.append(("Dead Letters", config.dead_letter))
    if config.backoff:
        pairs.append(("Backoff", ", ".join(show_duration(wait) for wait in config.backoff)))
    pairs += _rates(config)
    if info.paused or config.pause_until is not None:
        pairs.append(("Paused Until Deadline", show_time(config.pause_until)))
    if config.priority_policy != "none":
        pairs.append(("Priority Policy", config.priority_policy.replace("_", " ").title()))
        pairs.append(("Priority Groups", ", ".join(config.priority_groups)))
    pairs += [(f"Metadata {key}", value) for key, value in own_metadata(config)]
    return pairs


def _rates(config: ConsumerConfig) -> Pairs:
    pairs: Pairs = []
    if config.sample_freq:
        pairs.append(("Sampling Rate", config.sample_freq.rstrip("%") + "%"))
    if config.rate_limit_bps:
        pairs.append(("Rate Limit", f"{config.rate_limit_bps:,} bits/s"))
    if config.max_ack_pending > 0:
        pairs.append(("Max Ack Pending", f"{config.max_ack_pending:,}"))
    if config.max_waiting > 0:
        pairs.append(("Max Waiting Pulls", f"{config.max_waiting:,}"))
    if config.idle_heartbeat:
        pairs.append(("Idle Heartbeat", show_duration(config.idle_heartbeat)))
    if config.flow_control:
        pairs.append(("Flow Control", "true"))
    if config.headers_only:
        pairs.append(("Headers Only", "true"))
    if config.inactive_threshold:
        pairs.append(("Inactive Threshold", show_duration(config.inactive_threshold)))
    bounds = (
        ("Max Pull Batch", config.max_batch),
        ("Max Pull MaxBytes", config.max_bytes),
    )
    pairs += [(label, f"{count:,}") for label, count in bounds if count]
    if config.max_expires:
        pairs.append(("Max Pull Expire", show_duration(config.max_expires)))
    return pairs


def _deliver_text(config: ConsumerConfig) -> str:
    if config.deliver_policy == "by_start_sequence":
        return f"From Sequence {config.opt_start_seq}"
    if config.deliver_policy == "by_start_time":
        return f"Since {show_time(config.opt_start_time)}"
    names = {"all": "All", "new": "New", "last": "Last", "last_per_subject": "Last Per Subject"}
    return names.get(config.deliver_policy, config.deliver_policy)


def _position(position: SequenceInfo) -> str:
    text = f"Consumer sequence: {position.consumer_seq:,} Stream sequence: {position.stream_seq:,}"
    if position.last_active is not None:
        text += f" Last delivery: {show_since(position.last_active)} ago"
    return text


def _state(info: ConsumerInfo) -> Pairs:
    config = info.config
    floor = _position(info.ack_floor).replace("Last delivery", "Last Ack")
    pairs: Pairs = [
        ("Last Delivered Message", _position(info.delivered)),
        ("Acknowledgment Floor", floor),
    ]
    if config.ack_policy != "none":
        out = f"{info.num_ack_pending:,}"
        if config.max_ack_pending > 0:
            out += f" out of maximum {config.max_ack_pending:,}"
        pairs.append(("Outstanding Acks", out))
        pairs.append(("Redelivered Messages", f"{info.num_redelivered:,}"))
    pairs.append(("Unprocessed Messages", f"{info.num_pending:,}"))
    if config.deliver_subject:
        pairs.append(("Active Interest", "Active" if info.push_bound else "No interest"))
    else:
        waiting = f"{info.num_waiting:,}"
        if config.max_waiting > 0:
            waiting += f" of maximum {config.max_waiting:,}"
        pairs.append(("Waiting Pulls", waiting))
    if info.paused:
        pairs.append(("Paused For", show_duration(info.pause_remaining)))
    for group in info.priority_groups:
        pinned = f" pinned to {group.pinned_client_id}" if group.pinned_client_id else ""
        pairs.append(("Priority Group", group.group + pinned))
    return pairs


def list_consumers(stream: str, infos: Sequence[ConsumerInfo]) -> None:
    """The table of `consumer ls`."""
    rows = [
        (
            info.name,
            info.config.description,
            show_time(info.created),
            f"{info.num_ack_pending:,}",
            f"{info.num_pending:,}",
            show_since(info.delivered.last_active),
        )
        for info in infos
    ]
    columns = ("Name", "Description", "Created", "Ack Pending", "Unprocessed", "Last Delivery")
    table("Consumers", columns, rows)


def report_consumers(
    stream: StreamInfo,
    infos: Sequence[ConsumerInfo],
    letters: Mapping[str, str],
    raw: bool = False,
) -> None:
    """The table of `consumer report`; `letters` says of the dead letters of those that may have
    any. `raw` numbers have no commas."""
    columns = [
        "Consumer",
        "Mode",
        "Ack Policy",
        "Ack Wait",
        "Ack Pending",
        "Redelivered",
        "Unprocessed",
        "Ack Floor",
        "Cluster",
    ]
    if letters:
        columns.insert(-1, "Dead Letters")
    total = stream.state.messages
    rows = []
    for info in infos:
        share = f" / {100 * info.num_pending / total:.0f}%" if total and info.num_pending else ""
        row = [
            info.name,
            "Push" if info.config.deliver_subject else "Pull",
            info.config.ack_policy.title(),
            show_duration(info.config.ack_wait),
            show_limit(info.num_ack_pending) if info.num_ack_pending else "0",
            f"{info.num_redelivered:,}",
            f"{info.num_pending:,}{share}",
            f"{info.ack_floor.stream_seq:,}",
            info.cluster.leader if info.cluster else "",
        ]
        if letters:
            row.insert(-1, letters.get(info.name, ""))
        rows.append([*row[:1], *(cell.replace(",", "") for cell in row[1:])] if raw else row)
    title = f"Consumer report for {stream.name} with {len(infos):,} consumers"
    table(title, columns, rows)
