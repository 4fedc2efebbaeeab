"""What can be said of a consumer on the line, and the questions asked for what was not said."""

from typing import Any

from slipstream.cli.config_options import ConfigOption, pairs_of, words_of
from slipstream.cli.prompts import ask
from slipstream.cli.values import duration, later, moment, one_of
from slipstream.client.jetstream import ConsumerConfig

CONSUMER_OPTIONS = (
    ConfigOption("--description", "description", str, "What it is for"),
    ConfigOption("--pull", "pull", bool, "Clients ask for messages"),
    ConfigOption("--target", "deliver_subject", str, "Push messages to this subject"),
    ConfigOption("--deliver-group", "deliver_group", str, "Queue group of those who listen there"),
    ConfigOption("--deliver", "deliver", str,
                 "Where to begin: all, new, last, subject (last of each), a sequence, 1h, a time"),
    ConfigOption("--ack", "ack_policy", str, "explicit, all or none",
                 one_of("explicit", "all", "none")),
    ConfigOption("--filter", "filters", list[str], "Only these subjects"),
    ConfigOption("--replay", "replay_policy", str, "instant or original",
                 one_of("instant", "original")),
    ConfigOption("--wait", "ack_wait", str, "How long to wait for an ack, like 30s", duration),
    ConfigOption("--max-deliver", "max_deliver", int, "Deliveries of a message at most"),
    ConfigOption("--backoff", "backoff", list[str], "Waits between deliveries: 1s,5s,1m"),
    ConfigOption("--max-pending", "max_ack_pending", int, "Messages out for ack at most"),
    ConfigOption("--max-waiting", "max_waiting", int, "Pull requests waiting at most"),
    ConfigOption("--max-pull-batch", "max_batch", int, "Messages in a pull at most"),
    ConfigOption("--max-pull-bytes", "max_bytes", int, "Bytes in a pull at most"),
    ConfigOption("--max-pull-expire", "max_expires", str, "Longest pull", duration),
    ConfigOption("--sample", "sample_freq", str, "Percentage of acks to measure"),
    ConfigOption("--headers-only/--no-headers-only", "headers_only", bool, "Without the bodies"),
    ConfigOption("--heartbeat", "idle_heartbeat", str, "Push: heartbeats when idle", duration),
    ConfigOption("--flow-control/--no-flow-control", "flow_control", bool, "Push: flow control"),
    ConfigOption("--bps", "rate_limit_bps", int, "Push: bits a second at most"),
    ConfigOption("--inactive-threshold", "inactive_threshold", str,
                 "Forget it when nobody has asked for so long", duration),
    ConfigOption("--replicas", "num_replicas", int, "Copies in a cluster"),
    ConfigOption("--memory/--no-memory", "mem_storage", bool, "Keep its state in memory"),
    ConfigOption("--pause", "pause_until", str, "Paused until, or for how long", later),
    ConfigOption("--pinned-groups", "pinned", list[str], "Groups pinned to one client"),
    ConfigOption("--pinned-ttl", "priority_timeout", str, "How long a silent client is pinned",
                 duration),
    ConfigOption("--overflow-groups", "overflow", list[str], "Groups served above a bound"),
    ConfigOption("--prioritized-groups", "prioritized", list[str], "Groups served by priority"),
    ConfigOption("--metadata", "metadata", list[str], "key=value, more than once"),
)  # fmt: skip


def config_fields(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `ConsumerConfig` that the options set."""
    fields = dict(given)
    fields.pop("pull", None)
    if "deliver" in fields:
        fields |= deliver_policy(fields.pop("deliver"))
    if "filters" in fields:
        filters = words_of(fields.pop("filters"))
        single = len(filters) == 1
        fields |= {"filter_subject": filters[0]} if single else {"filter_subjects": filters}
    if "backoff" in fields:
        fields["backoff"] = [duration(word) for word in words_of(fields["backoff"])]
    if "metadata" in fields:
        fields["metadata"] = pairs_of(fields["metadata"])
    for option, policy in (
        ("pinned", "pinned_client"),
        ("overflow", "overflow"),
        ("prioritized", "prioritized"),
    ):
        if option in fields:
            fields |= {
                "priority_groups": words_of(fields.pop(option)),
                "priority_policy": policy,
            }
    return fields


def deliver_policy(text: str) -> dict[str, Any]:
    """The fields that say where to begin."""
    known = {"all": "all", "new": "new", "next": "new", "last": "last"}
    known |= {"subject": "last_per_subject", "last_per_subject": "last_per_subject"}
    known |= {"1": "all"}
    if text.lower() in known:
        return {"deliver_policy": known[text.lower()]}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    return {"deliver_policy": "by_start_time", "opt_start_time": moment(text)}


def ask_consumer(given: dict[str, Any]) -> dict[str, Any]:
    """Ask for the main options that were not given; the options with the answers."""
    if "deliver_subject" not in given and not given.get("pull"):
        target = ask("Delivery target (empty for Pull Consumers)", "")
        if target:
            given["deliver_subject"] = target
    if "deliver" not in given:
        given["deliver"] = ask("Start policy (all, new, last, subject, 1h, msg sequence)", "all")
    pull = "deliver_subject" not in given
    if "ack_policy" not in given:
        given["ack_policy"] = ask(
            "Acknowledgment policy", "explicit" if pull else "none", ("explicit", "all", "none")
        )
    if "replay_policy" not in given:
        given["replay_policy"] = ask("Replay policy", "instant", ("instant", "original"))
    if "filters" not in given:
        found = ask("Filter Stream by subjects (blank for all)", "")
        if found:
            given["filters"] = [found]
    if "max_deliver" not in given:
        given["max_deliver"] = int(ask("Maximum Allowed Deliveries", "-1"))
    if "max_ack_pending" not in given and given["ack_policy"] != "none":
        given["max_ack_pending"] = int(ask("Maximum Acknowledgments Pending", "0"))
    return given


def new_config(name: str, fields: dict[str, Any]) -> ConsumerConfig:
    """A new durable consumer's configuration."""
    return ConsumerConfig(durable_name=name, **fields)
