"""What can be said of a stream on the line, and the questions asked for what was not said."""

from typing import Any

from slipstream.cli.config_options import ConfigOption, pairs_of, words_of
from slipstream.cli.prompts import ask
from slipstream.cli.values import duration, one_of, size
from slipstream.client.jetstream import StreamConfig
from slipstream.model.configurations import (
    ConsumerLimits,
    Placement,
    Republish,
    StreamSource,
    SubjectTransform,
)
from slipstream.model.policies import (
    COMPRESSIONS,
    DISCARDS,
    PERSIST_MODES,
    RETENTIONS,
    STORAGES,
)

STREAM_OPTIONS = (
    ConfigOption("--subjects", "subjects", list[str], "Subjects that it stores"),
    ConfigOption("--description", "description", str, "What it is for"),
    ConfigOption("--storage", "storage", str, "file or memory",
                 one_of(*STORAGES, f="file", m="memory")),
    ConfigOption("--retention", "retention", str, "limits, interest or workqueue (work)",
                 one_of(*RETENTIONS, work="workqueue", workq="workqueue",
                        wq="workqueue", work_queue="workqueue")),
    ConfigOption("--discard", "discard", str, "What goes when it is full: old or new",
                 one_of(*DISCARDS)),
    ConfigOption("--max-msgs", "max_msgs", int, "Messages at most; -1: no bound"),
    ConfigOption("--max-msgs-per-subject", "max_msgs_per_subject", int, "Of each subject"),
    ConfigOption("--max-bytes", "max_bytes", str, "Bytes at most, like 1GB", size),
    ConfigOption("--max-age", "max_age", str, "How long messages stay, like 7d", duration),
    ConfigOption("--max-msg-size", "max_msg_size", str, "Largest message, like 1MB", size),
    ConfigOption("--max-consumers", "max_consumers", int, "Consumers at most"),
    ConfigOption("--dupe-window", "duplicate_window", str, "Memory for message ids", duration),
    ConfigOption("--replicas", "num_replicas", int, "Copies in a cluster"),
    ConfigOption("--ack/--no-ack", "ack", bool, "Acknowledge publishes"),
    ConfigOption("--compression", "compression", str, "none or s2", one_of(*COMPRESSIONS)),
    ConfigOption("--first-sequence", "first_seq", int, "The first message's sequence"),
    ConfigOption("--discard-per-subject/--no-discard-per-subject", "discard_new_per_subject",
                 bool, "With discard new: refuse beyond the bound of the subject"),
    ConfigOption("--allow-direct/--no-allow-direct", "allow_direct", bool, "Direct get"),
    ConfigOption("--allow-mirror-direct/--no-allow-mirror-direct", "mirror_direct", bool,
                 "Direct get from mirrors"),
    ConfigOption("--allow-rollup/--no-allow-rollup", "allow_rollup_hdrs", bool,
                 "A message may replace those before it"),
    ConfigOption("--deny-delete/--no-deny-delete", "deny_delete", bool, "Refuse deletes"),
    ConfigOption("--deny-purge/--no-deny-purge", "deny_purge", bool, "Refuse purges"),
    ConfigOption("--allow-msg-ttl/--no-allow-msg-ttl", "allow_msg_ttl", bool, "TTL by message"),
    ConfigOption("--subject-del-markers-ttl", "subject_delete_marker_ttl", str,
                 "How long delete markers stay", duration),
    ConfigOption("--allow-counter/--no-allow-counter", "allow_msg_counter", bool, "Counters"),
    ConfigOption("--allow-batch/--no-allow-batch", "allow_atomic", bool, "Atomic batches"),
    ConfigOption("--allow-fast/--no-allow-fast", "allow_batched", bool,
                 "Batches with few acknowledgements"),
    ConfigOption("--allow-schedules/--no-allow-schedules", "allow_msg_schedules", bool,
                 "Scheduled messages"),
    ConfigOption("--cluster", "cluster", str, "Cluster to live in"),
    ConfigOption("--tag --tags", "tags", list[str], "Only on servers with this tag"),
    ConfigOption("--mirror", "mirror", str, "Be a copy of this stream"),
    ConfigOption("--source", "sources", list[str], "Copy from this stream too"),
    ConfigOption("--transform-source", "transform_source", str, "Subjects to rename"),
    ConfigOption("--transform-destination", "transform_destination", str, "What they become"),
    ConfigOption("--republish-source", "republish_source", str, "Subjects to publish again"),
    ConfigOption("--republish-destination", "republish_destination", str, "Where to"),
    ConfigOption("--republish-headers/--republish-whole", "republish_headers", bool,
                 "Without the bodies"),
    ConfigOption("--limit-consumer-inactive", "limit_inactive", str,
                 "Longest inactive threshold of consumers", duration),
    ConfigOption("--limit-consumer-max-pending", "limit_max_pending", int,
                 "Highest max_ack_pending of consumers"),
    ConfigOption("--persist-mode", "persist_mode", str,
                 "default, or async: acknowledged before it is on disk", one_of(*PERSIST_MODES)),
    ConfigOption("--metadata", "metadata", list[str], "key=value, more than once"),
)  # fmt: skip
# What a stream can also lose when it is changed, and the field that is emptied.
REMOVALS = {"no_mirror": "mirror", "no_transform": "subject_transform", "no_republish": "republish"}
EDIT_OPTIONS = (
    *STREAM_OPTIONS,
    ConfigOption("--no-mirror", "no_mirror", bool, "Be a stream of its own from now on"),
    ConfigOption("--no-transform", "no_transform", bool, "Rename no subjects any more"),
    ConfigOption("--no-republish", "no_republish", bool, "Publish nothing again any more"),
)


def config_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `StreamConfig` that the options set."""
    fields = dict(given)
    for name in ("subjects", "tags"):
        if name in fields:
            fields[name] = words_of(fields[name])
    if "metadata" in fields:
        fields["metadata"] = pairs_of(fields["metadata"])
    if "ack" in fields:
        fields["no_ack"] = not fields.pop("ack")
    if "mirror" in fields:
        fields["mirror"] = StreamSource(name=fields["mirror"])
    if "sources" in fields:
        fields["sources"] = [StreamSource(name=name) for name in words_of(fields["sources"])]
    for option, field in REMOVALS.items():
        if fields.pop(option, False):
            fields[field] = None
    cluster, tags = fields.pop("cluster", ""), fields.pop("tags", [])
    if cluster or tags:
        fields["placement"] = Placement(cluster=cluster, tags=tags)
    _nest(fields)
    return fields


def _nest(fields: dict[str, Any]) -> None:
    """Move the options of parts into those parts."""
    source, to = fields.pop("transform_source", ""), fields.pop("transform_destination", "")
    if source or to:
        fields["subject_transform"] = SubjectTransform(src=source, dest=to)
    source, to = fields.pop("republish_source", ""), fields.pop("republish_destination", "")
    headers = fields.pop("republish_headers", False)
    if source or to:
        fields["republish"] = Republish(src=source, dest=to, headers_only=headers)
    inactive, pending = fields.pop("limit_inactive", 0.0), fields.pop("limit_max_pending", 0)
    if inactive or pending:
        fields["consumer_limits"] = ConsumerLimits(
            inactive_threshold=inactive, max_ack_pending=pending
        )


def ask_stream(given: dict[str, Any]) -> dict[str, Any]:
    """Ask for the main options that were not given; the options with the answers."""
    if "subjects" not in given and "mirror" not in given and "sources" not in given:
        given["subjects"] = [ask("Subjects", "")]
    questions: tuple[tuple[str, str, str, tuple[str, ...], Any], ...] = (
        ("storage", "Storage", "file", STORAGES, str),
        ("retention", "Retention Policy", "limits", RETENTIONS, str),
        ("discard", "Discard Policy", "old", DISCARDS, str),
        ("max_msgs", "Messages Limit", "-1", (), int),
        ("max_msgs_per_subject", "Per Subject Messages Limit", "-1", (), int),
        ("max_bytes", "Total Stream Size", "-1", (), size),
        ("max_age", "Message TTL", "-1", (), duration),
        ("max_msg_size", "Max Message Size", "-1", (), size),
        ("duplicate_window", "Duplicate tracking time window", "2m", (), duration),
    )
    for field, label, default, choices, read in questions:
        if field not in given:
            given[field] = read(ask(label, default, choices))
    return given


def defaults_of(name: str, fields: dict[str, Any]) -> StreamConfig:
    """A new stream's configuration: what the `nats` tool sets where nothing was said."""
    bounded = "max_age" in fields and 0 < fields["max_age"] < 120
    fields.setdefault("allow_direct", True)
    if "mirror" not in fields:
        fields.setdefault("duplicate_window", fields["max_age"] if bounded else 120.0)
    return StreamConfig(name=name, **fields)
