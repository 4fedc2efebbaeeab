"""What can be said of a consumer on the line, and the questions asked for what was not said."""

from typing import Any

import typer

from slipstream.cli.config_options import ConfigOption, pairs_of, words_of
from slipstream.cli.prompts import ask
from slipstream.cli.values import duration, later, moment, one_of
from slipstream.client.jetstream import ConsumerConfig
from slipstream.model.policies import ACK_POLICIES, REPLAY_POLICIES

CONSUMER_OPTIONS = (
    ConfigOption("--description", "description", str, "What it is for"),
    ConfigOption("--pull", "pull", bool, "Clients ask for messages"),
    ConfigOption("--target", "deliver_subject", str, "Push messages to this subject"),
    ConfigOption("--deliver-group", "deliver_group", str, "Queue group of those who listen there"),
    ConfigOption("--deliver", "deliver", str,
                 "Where to begin: all, new, last, subject (last of each), a sequence, 1h, a time"),
    ConfigOption("--ack", "ack_policy", str, "explicit, all, none or flow_control",
                 one_of(*ACK_POLICIES)),
    ConfigOption("--filter", "filters", list[str], "Only these subjects"),
    ConfigOption("--replay", "replay_policy", str, "instant or original",
                 one_of(*REPLAY_POLICIES)),
    ConfigOption("--wait", "ack_wait", str, "How long to wait for an ack, like 30s", duration),
    ConfigOption("--max-deliver", "max_deliver", int, "Deliveries of a message at most"),
    ConfigOption("--dead-letter", "dead_letter", str,
                 "Subject for what is terminated or delivered as often as it may be (Slipstream)"),
    ConfigOption("--backoff", "backoff", list[str],
                 "Waits between deliveries: 1s,5s,1m, or none, or linear with --backoff-..."),
    ConfigOption("--backoff-steps", "backoff_steps", int, "Linear: how many waits (10)"),
    ConfigOption("--backoff-min", "backoff_min", str, "Linear: the shortest (1m)", duration),
    ConfigOption("--backoff-max", "backoff_max", str, "Linear: the longest (20m)", duration),
    ConfigOption("--max-pending --max-outstanding", "max_ack_pending", int,
                 "Messages out for ack at most"),
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
    _set_backoff(fields)
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


def _set_backoff(fields: dict[str, Any]) -> None:
    """The waits themselves, from a list of them or from the steps of a linear policy."""
    said = {name: fields.pop(f"backoff_{name}", None) for name in ("steps", "min", "max")}
    given = any(value is not None for value in said.values())
    words = words_of(fields.get("backoff", ["linear"] if given else []))
    if words == ["linear"]:
        steps = said["steps"] or 10
        least = said["min"] if said["min"] is not None else 60.0
        most = said["max"] if said["max"] is not None else 1200.0
        if least > most:
            raise typer.BadParameter("--backoff-min is longer than --backoff-max")
        each = (most - least) / (steps - 1) if steps > 1 else 0.0
        fields["backoff"] = [round(least + n * each, 9) for n in range(steps)]
        # Each wait is of use only if the message may be delivered once more after it.
        if fields.get("max_deliver", steps + 1) <= steps:
            raise typer.BadParameter(
                f"{steps} waits need --max-deliver of {steps + 1} or more, or fewer --backoff-steps"
            )
    elif given:
        raise typer.BadParameter("--backoff-steps, -min and -max go with --backoff linear")
    elif words:
        fields["backoff"] = [] if words == ["none"] else [duration(word) for word in words]


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
        given["replay_policy"] = ask("Replay policy", "instant", REPLAY_POLICIES)
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
