"""Every metric of `/metrics`, and every alert, in one list.

The exposition takes its HELP and TYPE lines from here; `tools/generate_dashboards.py` makes of it
the Grafana board, the alert rules and docs/metrics.md.

Metrics that begin with `gnatsd_` or `jetstream_` have the names of prometheus-nats-exporter, whose
totals end in none of Prometheus' suffixes. They are gauges here as there; where a name has a suffix
that Prometheus reserves for another kind, the metric is untyped. `slipstream_` counters say the
same by Prometheus' own rules.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram", "untyped"]
Unit = Literal["none", "bytes", "seconds", "yes or no", "date"]


class Metric(msgspec.Struct, frozen=True):
    """A metric; the board leaves out those with `on_board` False."""

    name: str
    kind: Kind
    help: str
    unit: Unit = "none"
    on_board: bool = True


class Section(msgspec.Struct, frozen=True):
    """Metrics about one thing; each sample names that thing in `label`, which may be ""."""

    title: str
    label: str
    metrics: tuple[Metric, ...]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: `expression` is PromQL, `lasts` how long it has to hold."""

    name: str
    expression: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str
    action: str  # what an operator does about it


def _counter(name: str, help: str, unit: Unit = "none") -> Metric:
    return Metric(name, "counter", help, unit)


def _gauge(name: str, help: str, unit: Unit = "none", on_board: bool = True) -> Metric:
    return Metric(name, "gauge", help, unit, on_board)


def _histogram(name: str, help: str) -> Metric:
    return Metric(name, "histogram", help, "seconds")


SECTIONS = (
    Section(
        "Server",
        "",
        (
            _gauge("slipstream_healthy", "1 if /healthz finds nothing wrong.", "yes or no"),
            _gauge(
                "slipstream_problems", "Things that /healthz finds wrong with streams or the store."
            ),
            _gauge(
                "slipstream_build_info",
                "Always 1; the labels say which version and build runs.",
                on_board=False,
            ),
            _gauge("slipstream_connections", "Clients that are connected."),
            _gauge("slipstream_subscriptions", "Subscriptions, those of the server included."),
            _counter("slipstream_accepted_connections_total", "Clients that have connected."),
            _counter("slipstream_received_messages_total", "Messages that clients have sent."),
            _counter(
                "slipstream_received_bytes_total", "Bytes of messages that clients sent.", "bytes"
            ),
            _counter("slipstream_sent_messages_total", "Messages that clients were sent."),
            _counter(
                "slipstream_sent_bytes_total", "Bytes of messages that clients were sent.", "bytes"
            ),
            _counter(
                "slipstream_slow_consumers_total",
                "Clients that were cut off because they did not take what they were sent.",
            ),
            _counter(
                "slipstream_stale_connections_total",
                "Clients that were cut off because they did not answer pings.",
            ),
            _counter(
                "slipstream_stalled_publishers_total",
                "How often a publisher was slowed down because a subscriber did not keep up.",
            ),
            _histogram(
                "slipstream_turn_seconds",
                "Length of a turn of the server's event loop: everything that one read, timer or "
                "finished write sets off. Other clients wait that long.",
            ),
        ),
    ),
    Section(
        "Disk",
        "",
        (
            _gauge(
                "slipstream_store_free_bytes",
                "Free space of the file system that has the store directory, for this user.",
                "bytes",
            ),
            _gauge(
                "slipstream_store_size_bytes",
                "Size of the file system that has the store directory.",
                "bytes",
            ),
            _counter(
                "slipstream_scrub_read_bytes_total",
                "Bytes that the scrub has read again to look for damage.",
                "bytes",
            ),
            _gauge(
                "slipstream_scrub_pass_ratio",
                "How much of its pass the scrub has read, from 0 to 1.",
                on_board=False,
            ),
            _gauge(
                "slipstream_scrub_last_pass_timestamp_seconds",
                "When the scrub had last read everything; 0 if it has not since the start.",
                "date",
            ),
            _gauge(
                "slipstream_scrub_damaged_segments",
                "Files of streams in which the scrub has found damage.",
            ),
            _histogram(
                "slipstream_sync_seconds",
                "Time to write and sync one batch of messages or of configurations and positions.",
            ),
            _histogram(
                "slipstream_publish_ack_seconds",
                "Time between storing a message in a file stream and acknowledging it. All "
                "messages of a batch are counted with the time of the one that waited longest.",
            ),
        ),
    ),
    Section(
        "Group",
        "member",
        (
            _gauge("slipstream_group_members", "Servers of the group, all of them."),
            _gauge(
                "slipstream_group_online_members",
                "Servers of the group that are there, the leader included.",
            ),
            _gauge(
                "slipstream_group_current_members",
                "Servers of the group that have all that is committed, the leader included.",
            ),
            _gauge("slipstream_group_is_leader", "1 on the server that leads.", "yes or no"),
            _gauge(
                "slipstream_group_member_lag_entries",
                "Entries of the log that a follower does not have yet.",
            ),
            _gauge(
                "slipstream_group_member_idle_seconds",
                "Since the leader has last heard a follower.",
                "seconds",
            ),
        ),
    ),
    Section(
        "Followers",
        "",
        (
            _gauge(
                "slipstream_group_behind_entries",
                "Entries that are committed, and that a follower does not have in its files.",
            ),
            _gauge(
                "slipstream_group_relayed_clients",
                "Clients that a follower brings to the leader, which counts them, too.",
            ),
            _counter(
                "slipstream_group_relayed_connections_total",
                "Clients that a follower has brought to the leader.",
            ),
            _counter(
                "slipstream_group_relayed_in_bytes_total",
                "Bytes that came from clients of a follower.",
                "bytes",
            ),
            _counter(
                "slipstream_group_relayed_out_bytes_total",
                "Bytes that clients of a follower were sent.",
                "bytes",
            ),
        ),
    ),
    Section(
        "JetStream",
        "",
        (
            _gauge("jetstream_server_jetstream_disabled", "1 if JetStream is off.", on_board=False),
            _gauge("jetstream_server_total_streams", "Streams."),
            _gauge("jetstream_server_total_consumers", "Consumers."),
            _gauge("jetstream_server_total_messages", "Messages that are stored."),
            _gauge("jetstream_server_total_message_bytes", "Bytes that are stored.", "bytes"),
            _gauge("jetstream_server_max_memory", "Bytes of memory that streams may use.", "bytes"),
            _gauge("jetstream_server_max_storage", "Bytes of disk that streams may use.", "bytes"),
            _histogram(
                "slipstream_api_request_seconds",
                "Time between taking a JetStream API request and its answer, waiting included.",
            ),
        ),
    ),
    Section(
        "Accounts",
        "account",
        (
            _counter("slipstream_api_requests_total", "JetStream API requests that were answered."),
            _counter("slipstream_api_errors_total", "Those that were answered with an error."),
            _gauge("jetstream_account_max_memory", "Bytes of memory it may use; -1: any.", "bytes"),
            _gauge("jetstream_account_max_storage", "Bytes of disk it may use; -1: any.", "bytes"),
            _gauge("jetstream_account_memory_used", "Bytes in its memory streams.", "bytes"),
            _gauge("jetstream_account_storage_used", "Bytes in its file streams.", "bytes"),
        ),
    ),
    Section(
        "Streams",
        "stream_name",
        (
            _gauge("jetstream_stream_total_messages", "Messages that are stored."),
            _gauge("jetstream_stream_total_bytes", "Bytes that are stored.", "bytes"),
            _gauge("jetstream_stream_first_seq", "The first sequence.", on_board=False),
            _gauge("jetstream_stream_last_seq", "The last sequence."),
            Metric("jetstream_stream_consumer_count", "untyped", "Its consumers.", on_board=False),
            Metric("jetstream_stream_subject_count", "untyped", "Subjects of stored messages."),
            _gauge("jetstream_stream_limit_bytes", "max_bytes; -1: any.", "bytes", on_board=False),
            _gauge("jetstream_stream_limit_messages", "max_msgs; -1: any.", on_board=False),
            _gauge("jetstream_stream_mirror_lag", "Messages that a mirror has yet to take over."),
            _gauge("jetstream_stream_source_lag", "The same of a stream that sources others."),
            _gauge("slipstream_stream_idle_seconds", "Since the last message.", "seconds"),
            _gauge(
                "slipstream_stream_lost_messages", "Stored messages that turned out to be damaged."
            ),
            _gauge(
                "slipstream_stream_failed",
                "1 if the stream stores nothing any more because its disk has failed.",
                "yes or no",
            ),
        ),
    ),
    Section(
        "Consumers",
        "consumer_name",
        (
            _gauge(
                "slipstream_consumer_lag_messages",
                "Messages that are not acknowledged yet, delivered or not.",
            ),
            _gauge(
                "slipstream_consumer_idle_seconds",
                "Since the last delivery or acknowledgement.",
                "seconds",
            ),
            _gauge(
                "slipstream_consumer_dead_letters_waiting",
                "Messages that are to become dead letters and that no stream has stored yet.",
            ),
            _gauge("jetstream_consumer_num_pending", "Messages that were not delivered yet."),
            _gauge(
                "jetstream_consumer_num_ack_pending",
                "Messages that were delivered and not acknowledged yet.",
            ),
            _gauge(
                "jetstream_consumer_num_redelivered", "Messages that were delivered more than once."
            ),
            _gauge("jetstream_consumer_num_waiting", "Pull requests that wait for messages."),
            _gauge("jetstream_consumer_delivered_consumer_seq", "Deliveries so far."),
            _gauge(
                "jetstream_consumer_delivered_stream_seq",
                "The last sequence that was delivered.",
                on_board=False,
            ),
            _gauge(
                "jetstream_consumer_ack_floor_consumer_seq",
                "All deliveries up to this one are acknowledged.",
                on_board=False,
            ),
            _gauge(
                "jetstream_consumer_ack_floor_stream_seq",
                "All messages up to this sequence are acknowledged.",
                on_board=False,
            ),
        ),
    ),
    Section(
        "Process",
        "",
        (
            _counter("process_cpu_seconds_total", "Processor time, user and system.", "seconds"),
            _gauge("process_resident_memory_bytes", "Resident memory.", "bytes"),
            _gauge("process_virtual_memory_bytes", "Virtual memory.", "bytes", on_board=False),
            _gauge("process_open_fds", "Open file descriptors."),
            _gauge("process_max_fds", "How many file descriptors may be open.", on_board=False),
            _gauge("process_threads", "Threads.", on_board=False),
            _gauge("process_start_time_seconds", "When it began, since 1970.", "date"),
        ),
    ),
)

METRICS = {metric.name: metric for section in SECTIONS for metric in section.metrics}

ALERTS = (
    Alert(
        name="SlipstreamDown",
        expression='up{job="slipstream"} == 0',
        lasts="1m",
        severity="critical",
        summary="The server does not answer on its monitoring port.",
        action="Look at the service's state and at the last lines of its log.",
    ),
    Alert(
        name="SlipstreamUnhealthy",
        expression="slipstream_healthy == 0",
        lasts="1m",
        severity="critical",
        summary="/healthz reports a problem.",
        action="curl /healthz?details=true and find the message in docs/operations.md.",
    ),
    Alert(
        name="SlipstreamMessagesLost",
        expression="slipstream_stream_lost_messages > 0",
        lasts="0m",
        severity="critical",
        summary="Stored messages are damaged and cannot be read.",
        action="Take them from a backup or a mirror; slipstream check says which they are.",
    ),
    Alert(
        name="SlipstreamStoreDamaged",
        expression="slipstream_scrub_damaged_segments > 0",
        lasts="0m",
        severity="critical",
        summary="The scrub has found that the disk gives back other bytes than it was given.",
        action="curl /healthz?details=true says where; back up, and replace the disk.",
    ),
    Alert(
        name="SlipstreamStreamFailed",
        expression="slipstream_stream_failed == 1",
        lasts="0m",
        severity="critical",
        summary="A stream stores nothing any more because its disk has failed.",
        action="Look at the disk, then restart the server.",
    ),
    Alert(
        name="SlipstreamDiskAlmostFull",
        expression="slipstream_store_free_bytes / slipstream_store_size_bytes < 0.1",
        lasts="5m",
        severity="critical",
        summary="Less than a tenth of the store's file system is free.",
        action="Free space, purge or bound streams, or grow the file system.",
    ),
    Alert(
        name="SlipstreamDiskFullWithinADay",
        expression="predict_linear(slipstream_store_free_bytes[6h], 86400) < 0",
        lasts="1h",
        severity="warning",
        summary="At this rate the store's file system is full within a day.",
        action="Bound the stream that grows (max_bytes, max_age), or grow the file system.",
    ),
    Alert(
        name="SlipstreamAccountAlmostFull",
        expression=("jetstream_account_storage_used / (jetstream_account_max_storage > 0) > 0.9"),
        lasts="5m",
        severity="warning",
        summary="An account has used more than nine tenths of the disk that it may use.",
        action="Raise its limit or bound its streams; beyond the limit publishes are refused.",
    ),
    Alert(
        name="SlipstreamGroupWithoutReserve",
        expression=(  # one of two is enough where the register lies outside of the group
            "2 * (slipstream_group_online_members - 1) <= (slipstream_group_members > 2) or "
            "slipstream_group_online_members < (slipstream_group_members == 2)"
        ),
        lasts="1m",
        severity="critical",
        summary="If one more server of the group fails, no majority is left.",
        action="curl /jsz on the leader says which server is away; bring it back.",
    ),
    Alert(
        name="SlipstreamGroupMemberBehind",
        expression="slipstream_group_current_members < slipstream_group_members",
        lasts="10m",
        severity="warning",
        summary="A server of the group is away, or has not all that is committed.",
        action="slipstream server report jetstream shows who lags; look at its log and its disk.",
    ),
    Alert(
        name="SlipstreamConsumerStalled",
        expression=(
            "slipstream_consumer_lag_messages > 0 and slipstream_consumer_idle_seconds > 300"
        ),
        lasts="5m",
        severity="warning",
        summary="A consumer is behind and nothing was delivered or acknowledged for minutes.",
        action="slipstream consumer why STREAM CONSUMER says what it waits for.",
    ),
    Alert(
        name="SlipstreamDeadLettersWait",
        expression="slipstream_consumer_dead_letters_waiting > 0",
        lasts="5m",
        severity="warning",
        summary="Messages that were given up cannot be stored as dead letters.",
        action="slipstream consumer why STREAM CONSUMER says which stream refuses them.",
    ),
    Alert(
        name="SlipstreamSlowConsumers",
        expression="increase(slipstream_slow_consumers_total[10m]) > 0",
        lasts="0m",
        severity="warning",
        summary="Clients were cut off because they did not take what they were sent.",
        action="/connz?state=closed names them; have them read faster or use a pull consumer.",
    ),
    Alert(
        name="SlipstreamSlowDisk",
        expression=(
            "histogram_quantile(0.99, sum by (instance, le) "
            "(rate(slipstream_sync_seconds_bucket[5m]))) > 0.25"
        ),
        lasts="10m",
        severity="warning",
        summary="One in a hundred syncs takes longer than a quarter of a second.",
        action="See what else uses the disk; publishers wait for each sync.",
    ),
    Alert(
        name="SlipstreamBusy",
        expression="rate(slipstream_turn_seconds_sum[5m]) > 0.9",
        lasts="10m",
        severity="warning",
        summary="The event loop works more than nine tenths of the time.",
        action="Spread the load over more servers, or publish in batches.",
    ),
    Alert(
        name="SlipstreamSlowApi",
        expression=(
            "histogram_quantile(0.99, sum by (instance, le) "
            "(rate(slipstream_api_request_seconds_bucket[5m]))) > 1"
        ),
        lasts="10m",
        severity="warning",
        summary="One in a hundred JetStream API requests takes longer than a second.",
        action="Look for clients that make many requests, and at the disk.",
    ),
    Alert(
        name="SlipstreamFilesRunOut",
        expression="process_open_fds / process_max_fds > 0.85",
        lasts="5m",
        severity="warning",
        summary="The process has few file descriptors left.",
        action="Raise LimitNOFILE; each client needs one.",
    ),
    Alert(
        name="SlipstreamRestarts",
        expression='changes(process_start_time_seconds{job="slipstream"}[15m]) > 2',
        lasts="0m",
        severity="warning",
        summary="The server has restarted several times.",
        action="The log, or journalctl -u slipstream, says why it ended.",
    ),
)


def metric_of(name: str) -> Metric:
    """The entry of a metric; one of those that have the path to a number of an endpoint as their
    name gets one made for it."""
    found = METRICS.get(name)
    if found is not None:
        return found
    _, endpoint, path = name.split("_", 2)
    help = f"{path} of /{endpoint}, by the name that prometheus-nats-exporter gives it."
    reserved = name.endswith(("_total", "_count", "_sum", "_bucket"))
    return Metric(name, "untyped" if reserved else "gauge", help)


def names_in(expression: str) -> Iterator[str]:
    """The metrics that a PromQL expression reads, those of a histogram by its own name."""
    for name in re.findall(r"\b(?:slipstream|jetstream|process|gnatsd)_\w+", expression):
        yield re.sub(r"_(?:bucket|sum|count)$", "", name) if name not in METRICS else name
