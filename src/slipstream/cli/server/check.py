"""`slipstream server check`: checks for Nagios, Prometheus and the like.

What a check has found is a status (the exit code), values with their bounds, and what is wrong.
"""

import inspect
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer

from slipstream.cli.config_options import pairs_of
from slipstream.cli.global_options import UsageError
from slipstream.cli.output import print_json
from slipstream.cli.server.system import SYSTEM_HELP, ask_servers
from slipstream.cli.session import (
    command,
    connection,
    jetstream,
    new_app,
    round_trip,
    wants_json,
)
from slipstream.cli.values import duration, one_of, show_duration
from slipstream.client.jetstream import ConsumerInfo, StreamInfo
from slipstream.errors import ConfigError, Error
from slipstream.model.durations import SECOND, to_seconds
from slipstream.model.infos import PeerInfo, StreamSourceInfo
from slipstream.model.times import Timestamp

app = new_app("Checks for Nagios and the like: exit code 0 OK, 1 warning, 2 critical.")

OK, WARNING, CRITICAL = 0, 1, 2
WORDS = {OK: "OK", WARNING: "WARNING", CRITICAL: "CRITICAL"}
NAMESPACE = "nats_server_check"
# Metadata of a stream or consumer that stands for an option of that name, as with the nats tool.
METADATA_PREFIX = "io.nats.monitor."

FormatOption = Annotated[
    Any,
    typer.Option(
        "--format",
        metavar="TEXT",
        help="nagios, json, prometheus or text",
        parser=one_of("nagios", "json", "prometheus", "text"),
    ),
]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="Prometheus: what names begin")]
OutfileOption = Annotated[
    Path | None, typer.Option("--outfile", help="Write to this file, not to stdout")
]
StreamOption = Annotated[str, typer.Option("--stream", help="The stream")]
ConsumerOption = Annotated[str, typer.Option("--consumer", help="The consumer")]
Bound = int | None


class Wrong(Enum):
    """On which side of its bounds a value is wrong, a value on a bound included."""

    HIGH = "high"
    LOW = "low"
    EITHER = "either"  # low where the critical bound is below that of the warning


class Figure(msgspec.Struct):
    """A value with its bounds, as the `nats` tool has them in JSON; a bound of 0 is none."""

    name: str
    value: float
    warning: float
    critical: float
    unit: str

    def as_performance_data(self) -> str:
        """As the plugins of Nagios write it."""
        digits = 4 if self.unit == "s" else 0
        bounds = [f"{one:.{digits}f}" if one else "" for one in (self.warning, self.critical)]
        return ";".join([f"{self.name}={self.value:.{digits}f}{self.unit}", *bounds]).rstrip(";")

    def facts(self) -> dict[str, object]:
        """As JSON."""
        found = {"name": self.name, "value": self.value}
        found |= {"warning": self.warning, "critical": self.critical}
        return {**found, "unit": self.unit} if self.unit else {**found}


class Check:
    """What a check has found, and how it is written. `suite` is the kind of check, as metrics and
    JSON name it."""

    def __init__(self, name: str, suite: str = "") -> None:
        self.name = name
        self.item = ""  # what was looked at, where there are many
        self.status = OK
        self._suite = suite
        self._said: dict[int, list[str]] = {WARNING: [], CRITICAL: []}
        self._figures: list[Figure] = []

    def value(
        self,
        name: str,
        value: float,
        warn: float | None = None,
        critical: float | None = None,
        unit: str = "",
        wrong: Wrong = Wrong.HIGH,
    ) -> None:
        """Take in a value that should be on the right side of its bounds (0, None: none)."""
        warn, critical = max(warn or 0, 0), max(critical or 0, 0)
        self._figures.append(Figure(name, value, warn, critical, unit))
        is_low = wrong is Wrong.LOW or (wrong is Wrong.EITHER and critical < warn)
        for status, bound in ((CRITICAL, critical), (WARNING, warn)):
            if bound and (value <= bound if is_low else value >= bound):
                sign = "<=" if is_low else ">="
                self.fail(f"{name} {value:g}{unit} {sign} {bound:g}{unit}", status)
                return

    def fail(self, text: str, status: int = CRITICAL) -> None:
        """Something is wrong."""
        self.status = max(self.status, status)
        self._said[status].append(text)

    def expect(self, is_right: bool, text: str) -> None:
        """It is critical if something is not as it is expected."""
        if not is_right:
            self.fail(text)

    def facts(self) -> dict[str, object]:
        """As JSON, in the shape that the `nats` tool has."""
        said = {"warning": self._said[WARNING], "critical": self._said[CRITICAL]}
        return {
            "status": WORDS[self.status],
            "check_suite": self._suite,
            "check_name": self.item or self.name,
            **{name: texts for name, texts in said.items() if texts},
            "perf_data": [figure.facts() for figure in self._figures],
        }

    def text(self, kind: str, namespace: str) -> str:
        """In one of the formats but JSON."""
        problems = [*self._said[CRITICAL], *self._said[WARNING]]
        if kind == "prometheus":
            return "\n".join(self._metrics(namespace))
        if kind == "text":
            lines = [f"{self.name}: {WORDS[self.status]}", *(f"  {one}" for one in problems)]
            return "\n".join(lines + [f"  {one.name}: {one.value:g}" for one in self._figures])
        values = " ".join(one.as_performance_data() for one in self._figures)
        line = f"{self.name} {WORDS[self.status]}: {'; '.join(problems) or 'all fine'}"
        return line + (f" | {values}" if values else "")

    def _metrics(self, namespace: str) -> list[str]:
        prefix = f"{namespace}_{self._suite}"
        item = msgspec.json.encode(self.item or self.name).decode()
        lines = []
        for one in self._figures:
            metric = f"{prefix}_{re.sub(r'[^A-Za-z0-9_]+', '_', one.name)}"
            lines += [f"# TYPE {metric} gauge", f"{metric}{{item={item}}} {one.value:g}"]
        status = f'{prefix}_status_code{{item={item},status="{WORDS[self.status]}"}}'
        return [*lines, f"# TYPE {prefix}_status_code gauge", f"{status} {self.status}"]


def checking(
    name: str, title: str, suite: str = ""
) -> Callable[[Callable[..., Coroutine[None, None, None]]], Callable[..., object]]:
    """Make a function a check: it gets a `Check` first, and what it raises is critical."""

    def register(function: Callable[..., Coroutine[None, None, None]]) -> Callable[..., object]:
        own = list(inspect.signature(function).parameters.values())[1:]
        more = (
            ("kind", FormatOption, "nagios"),
            ("namespace", NamespaceOption, NAMESPACE),
            ("outfile", OutfileOption, None),
        )

        async def call(kind: str, namespace: str, outfile: Path | None, **words: object) -> None:
            check = Check(title, suite or name)
            try:
                await function(check, **words)
            except UsageError:
                raise
            except Error as error:
                check.fail(str(error))
            _write(check, kind, namespace, outfile)
            # Who reads metrics finds the status there, and takes any other code for a failure.
            raise typer.Exit(OK if kind == "prometheus" else check.status)

        parameters = [
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own),
            *(
                inspect.Parameter(
                    field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
                for field, annotation, default in more
            ),
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        call.__doc__ = function.__doc__
        command(app, name)(call)
        return function

    return register


def _write(check: Check, kind: str, namespace: str, outfile: Path | None) -> None:
    if outfile is None and (kind == "json" or wants_json()):
        print_json(check.facts())
        return
    if kind == "json" or wants_json():
        text = msgspec.json.encode(check.facts()).decode()
    else:
        text = check.text(kind, namespace)
    if outfile is None:
        typer.echo(text)
    else:
        outfile.write_text(text + "\n")


@checking("connection", "NATS Connection", suite="connections")
async def check_connection(
    check: Check,
    connect_warn: Annotated[str, typer.Option("--connect-warn")] = "500ms",
    connect_critical: Annotated[str, typer.Option("--connect-critical")] = "1s",
    rtt_warn: Annotated[str, typer.Option("--rtt-warn")] = "500ms",
    rtt_critical: Annotated[str, typer.Option("--rtt-critical")] = "1s",
    req_warn: Annotated[str, typer.Option("--req-warn", help="Of a message to itself")] = "500ms",
    req_critical: Annotated[str, typer.Option("--req-critical")] = "1s",
) -> None:
    """Whether a server takes connections, and how fast."""
    check.item = "Connection"
    began = perf_counter()
    async with connection() as nc:
        took = perf_counter() - began
        rtt = await round_trip(nc)
        inbox = nc.new_inbox()
        echo = await nc.subscribe(inbox)
        began = perf_counter()
        await nc.publish(inbox, b"x")
        await echo.next(nc.options.timeout)
        request = perf_counter() - began
    check.value("connect_time", took, duration(connect_warn), duration(connect_critical), "s")
    check.value("rtt", rtt, duration(rtt_warn), duration(rtt_critical), "s")
    check.value("request_time", request, duration(req_warn), duration(req_critical), "s")


@checking("exposure", "NATS Exposure")
async def check_exposure(check: Check) -> None:
    """Whether strangers can use the server: it asks nobody who he is, and where it listens."""
    async with connection() as nc:
        found = nc.server_info
    where = found.host or "0.0.0.0"
    if not found.auth_required and not _is_loopback(where):
        everywhere = where in ("0.0.0.0", "::")
        listens = "on all interfaces" if everywhere else f"on {where}"
        check.fail(
            f"the server listens {listens} and lets in everybody: configure users, "
            "or let it listen on 127.0.0.1",
            CRITICAL if everywhere else WARNING,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@checking("stream", "JetStream Stream")
async def check_stream(
    check: Check,
    stream: StreamOption,
    msgs_warn: Annotated[
        Bound, typer.Option("--msgs-warn", help="So few messages, or fewer")
    ] = None,
    msgs_critical: Annotated[Bound, typer.Option("--msgs-critical")] = None,
    subjects_warn: Annotated[
        Bound, typer.Option("--subjects-warn", help="More subjects; fewer, if critical is less")
    ] = None,
    subjects_critical: Annotated[Bound, typer.Option("--subjects-critical")] = None,
    lag_critical: Annotated[
        Bound, typer.Option("--lag-critical", help="Of mirror, sources")
    ] = None,
    seen_critical: Annotated[
        str, typer.Option("--seen-critical", help="Mirror, sources: silent for so long")
    ] = "",
    min_sources: Annotated[Bound, typer.Option("--min-sources", help="Fewer sources")] = None,
    max_sources: Annotated[Bound, typer.Option("--max-sources", help="More sources")] = None,
    peer_expect: Annotated[Bound, typer.Option("--peer-expect", help="Not so many copies")] = None,
    peer_lag_critical: Annotated[
        Bound, typer.Option("--peer-lag-critical", help="A copy lags more behind")
    ] = None,
    peer_seen_critical: Annotated[
        str, typer.Option("--peer-seen-critical", help="A copy is silent for so long")
    ] = "",
) -> None:
    """A stream's health. Bounds may also be in its metadata: io.nats.monitor.lag-critical."""
    async with jetstream() as js:
        info = await js.stream_info(stream)
    check.item = stream
    said = info.config.metadata
    check.value("messages", info.state.messages, _of(said, "msgs-warn", msgs_warn),
                _of(said, "msgs-critical", msgs_critical), wrong=Wrong.LOW)  # fmt: skip
    subjects = (
        _of(said, "subjects-warn", subjects_warn),
        _of(said, "subjects-critical", subjects_critical),
    )
    if any(subjects):
        check.value("subjects", info.state.num_subjects, *subjects, wrong=Wrong.EITHER)
    if info.state.lost is not None and info.state.lost.msgs:
        check.fail(f"{len(info.state.lost.msgs):,} messages are lost to damage")
    _check_origins(
        check,
        info,
        _of(said, "lag-critical", lag_critical),
        duration(seen_critical or said.get(f"{METADATA_PREFIX}seen-critical", "")),
    )
    least, most = _of(said, "min-sources", min_sources), _of(said, "max-sources", max_sources)
    count = len(info.sources)
    check.value("sources", count)
    check.expect(count >= (least or 0), f"{count} sources, fewer than {least}")
    check.expect(most is None or count <= most, f"{count} sources, more than {most}")
    copies = info.cluster.replicas if info.cluster else []
    wanted = _of(said, "peer-expect", peer_expect)
    if wanted:
        check.expect(len(copies) + 1 == wanted, f"{len(copies) + 1} copies, not {wanted}")
    seen = peer_seen_critical or said.get(f"{METADATA_PREFIX}peer-seen-critical", "")
    _check_copies(check, stream, copies, _of(said, "peer-lag-critical", peer_lag_critical), seen)


def _of(metadata: Mapping[str, str], option: str, given: Bound) -> Bound:
    """A bound of the line, or else of the metadata. Raises `ConfigError` for one that is none."""
    text = metadata.get(METADATA_PREFIX + option, "")
    if given is not None or not text:
        return given
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"the metadata {METADATA_PREFIX}{option} is no number: {text}") from error


def _check_origins(check: Check, info: StreamInfo, lag: Bound, seen: float) -> None:
    found: list[StreamSourceInfo] = [*info.sources, *([info.mirror] if info.mirror else [])]
    for one in found:
        check.value(f"lag_{one.name}", one.lag, 0, lag)
        if seen:
            is_seen = one.active is not None and to_seconds(one.active, "active") < seen
            check.expect(is_seen, f"{one.name} was not seen for {show_duration(seen)}")


def _check_copies(check: Check, stream: str, copies: list[PeerInfo], lag: Bound, seen: str) -> None:
    bound = duration(seen)
    for one in copies:
        check.expect(not one.offline, f"the copy of {stream} on {one.name} is offline")
        if lag:
            check.expect(one.lag <= lag, f"the copy of {stream} on {one.name} lags {one.lag:,}")
        if bound:
            check.expect(
                to_seconds(one.active, "active") <= bound,
                f"{one.name} with a copy of {stream} was not seen for {seen}",
            )


@checking("consumer", "JetStream Consumer")
async def check_consumer(
    check: Check,
    stream: StreamOption,
    consumer: ConsumerOption,
    outstanding: Annotated[
        Bound, typer.Option("--outstanding-ack-critical", help="So many are out for ack")
    ] = None,
    waiting: Annotated[Bound, typer.Option("--waiting-critical", help="So many pulls wait")] = None,
    unprocessed: Annotated[
        Bound, typer.Option("--unprocessed-critical", help="So many are to be delivered")
    ] = None,
    redelivery: Annotated[
        Bound, typer.Option("--redelivery-critical", help="So many were delivered again")
    ] = None,
    last_delivery: Annotated[
        str, typer.Option("--last-delivery-critical", help="Nothing delivered for so long")
    ] = "",
    last_ack: Annotated[
        str, typer.Option("--last-ack-critical", help="Nothing acknowledged for so long")
    ] = "",
    pinned: Annotated[bool, typer.Option("--pinned", help="Each group has to be pinned")] = False,
) -> None:
    """A consumer's health. Bounds may also be in its metadata, as a stream's."""
    async with jetstream() as js:
        info = await js.consumer_info(stream, consumer)
    check.item = f"{stream}_{consumer}"
    said = info.config.metadata
    for name, value, option, bound in (
        ("ack_pending", info.num_ack_pending, "outstanding-ack-critical", outstanding),
        ("pull_waiting", info.num_waiting, "waiting-critical", waiting),
        ("pending", info.num_pending, "unprocessed-critical", unprocessed),
        ("redelivered", info.num_redelivered, "redelivery-critical", redelivery),
    ):
        check.value(name, value, 0, _of(said, option, bound))
    for name, when, bound_text in (
        ("last-delivery", info.delivered.last_active, last_delivery),
        ("last-ack", info.ack_floor.last_active, last_ack),
    ):
        bound_text = bound_text or said.get(f"{METADATA_PREFIX}{name}-critical", "")
        age = (datetime.now(UTC) - when).total_seconds() if when else None
        if age is not None:
            check.value(name.replace("-", "_"), age, unit="s")
        if bound_text:
            is_late = age is None or age >= duration(bound_text)
            check.expect(not is_late, f"no {name.replace('-', ' ')} within {bound_text}")
    if pinned:
        check.expect(_is_pinned(info), "not every priority group is pinned to a client")


def _is_pinned(info: ConsumerInfo) -> bool:
    groups = info.priority_groups
    return bool(groups) and all(group.pinned_client_id for group in groups)


@checking("message", "Stream Message")
async def check_message(
    check: Check,
    stream: StreamOption,
    subject: Annotated[str, typer.Option("--subject", help="The last of this subject")] = ">",
    age_warn: Annotated[str, typer.Option("--age-warn", help="It is older")] = "",
    age_critical: Annotated[str, typer.Option("--age-critical", help="It is older")] = "",
    content: Annotated[
        str, typer.Option("--content", help="A regular expression that its body matches")
    ] = "",
    body_timestamp: Annotated[
        bool, typer.Option("--body-timestamp", help="Its body is its time, in seconds since 1970")
    ] = False,
) -> None:
    """The last message of a stream, or of a subject: its age and its body."""
    pattern = _pattern("--content", content)
    async with jetstream() as js:
        message = await (await js.stream(stream)).get_last_message(subject)
    check.item = stream
    body = message.data.decode("utf-8", "replace")
    stored = message.time.timestamp() if message.time is not None else 0.0
    if body_timestamp:
        try:
            stored = float(body)
        except ValueError:
            check.fail(f'the body "{body[:40]}" is no time in seconds since 1970')
            return
    check.value("age", time.time() - stored, duration(age_warn), duration(age_critical), "s")
    check.value("size", len(message.data), unit="B")
    check.expect(bool(pattern.search(body)), f"the body does not match {content}")


def _pattern(option: str, text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f'{option} "{text}" is no regular expression: {error}') from error


@checking("kv", "Key-Value Bucket")
async def check_kv(
    check: Check,
    bucket: Annotated[str, typer.Option("--bucket", help="The bucket")],
    values_warn: Annotated[
        Bound, typer.Option("--values-warn", help="More values; fewer, if critical is less")
    ] = None,
    values_critical: Annotated[Bound, typer.Option("--values-critical")] = None,
    key: Annotated[str, typer.Option("--key", help="It has to have a value")] = "",
) -> None:
    """A bucket, how many values it has, and whether a key has one."""
    check.item = bucket
    async with jetstream() as js:
        kv = await js.key_value(bucket)
        status = await kv.status()
        if key:
            await kv.get(key)
    check.value("values", status.values, values_warn, values_critical, wrong=Wrong.EITHER)
    check.value("bytes", status.bytes, unit="B")


@checking("request", "NATS Request")
async def check_request(
    check: Check,
    subject: Annotated[str, typer.Option("--subject", help="Where the request goes")],
    payload: Annotated[str, typer.Option("--payload", help="Its body")] = "",
    headers: Annotated[list[str] | None, typer.Option("--headers", help="name=value")] = None,
    match_payload: Annotated[
        str, typer.Option("--match-payload", help="A regular expression for the answer's body")
    ] = "",
    match_headers: Annotated[
        list[str] | None, typer.Option("--match-headers", help="name=pattern, of the answer")
    ] = None,
    response_warn: Annotated[str, typer.Option("--response-warn", help="It takes longer")] = "",
    response_critical: Annotated[str, typer.Option("--response-critical")] = "",
) -> None:
    """Whether somebody answers a request, how fast, and with what."""
    check.item = subject
    pattern = _pattern("--match-payload", match_payload)
    wanted = {
        name: _pattern("--match-headers", text)
        for name, text in pairs_of(match_headers or []).items()
    }
    async with connection() as nc:
        began = perf_counter()
        sent = pairs_of(headers or []) or None
        answer = await nc.request(subject, payload.encode(), headers=sent)
        took = perf_counter() - began
    check.value("time", took, duration(response_warn), duration(response_critical), "s")
    body = answer.data.decode("utf-8", "replace")
    check.expect(bool(pattern.search(body)), f"the answer does not match {match_payload}")
    for name, one in wanted.items():
        found = answer.headers.get(name, "")
        check.expect(bool(found and one.search(found)), f"the answer's header {name} is {found!r}")


@checking("jetstream", "JetStream")
async def check_jetstream(
    check: Check,
    storage_warn: Annotated[int, typer.Option("--store-warn", help="Percent")] = 75,
    storage_critical: Annotated[int, typer.Option("--store-critical", help="Percent")] = 90,
    memory_warn: Annotated[int, typer.Option("--mem-warn", help="Percent")] = 75,
    memory_critical: Annotated[int, typer.Option("--mem-critical", help="Percent")] = 90,
    streams_warn: Annotated[Bound, typer.Option("--streams-warn", help="Percent")] = None,
    streams_critical: Annotated[Bound, typer.Option("--streams-critical", help="Percent")] = None,
    consumers_warn: Annotated[Bound, typer.Option("--consumers-warn", help="Percent")] = None,
    consumers_critical: Annotated[
        Bound, typer.Option("--consumers-critical", help="Percent")
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas/--no-replicas", help="Look at each stream's copies, too")
    ] = True,
    replica_lag: Annotated[int, typer.Option("--replica-lag-critical")] = 200,
    replica_seen: Annotated[str, typer.Option("--replica-seen-critical")] = "5s",
) -> None:
    """How much of the account's limits is used, and whether the copies of its streams are well."""
    async with jetstream() as js:
        info = await js.account_info()
        streams = [one async for one in js.streams()] if replicas else []
    limits = info.limits
    for name, used, most, warn, critical, unit in (
        ("memory", info.memory, limits.max_memory, memory_warn, memory_critical, "B"),
        ("storage", info.storage, limits.max_storage, storage_warn, storage_critical, "B"),
        ("streams", info.streams, limits.max_streams, streams_warn, streams_critical, ""),
        ("consumers", info.consumers, limits.max_consumers, consumers_warn, consumers_critical, ""),
    ):
        check.value(name, used, unit=unit)
        check.value(f"{name}_pct", 100 * used / most if most > 0 else 0, warn, critical, "%")
    for one in streams:
        copies = one.cluster.replicas if one.cluster else []
        _check_copies(check, one.name, copies, replica_lag, replica_seen)


@checking("server", "NATS Server")
async def check_server(
    check: Check,
    name: Annotated[str, typer.Option("--name", help="The server's name")],
    cpu_warn: Annotated[Bound, typer.Option("--cpu-warn", help="Percent")] = None,
    cpu_critical: Annotated[Bound, typer.Option("--cpu-critical", help="Percent")] = None,
    mem_warn: Annotated[Bound, typer.Option("--mem-warn", help="Bytes")] = None,
    mem_critical: Annotated[Bound, typer.Option("--mem-critical", help="Bytes")] = None,
    conn_warn: Annotated[
        Bound, typer.Option("--conn-warn", help="More connections; fewer, if critical is less")
    ] = None,
    conn_critical: Annotated[Bound, typer.Option("--conn-critical")] = None,
    subs_warn: Annotated[
        Bound, typer.Option("--subs-warn", help="More subscriptions; fewer, if critical is less")
    ] = None,
    subs_critical: Annotated[Bound, typer.Option("--subs-critical")] = None,
    uptime_warn: Annotated[
        str, typer.Option("--uptime-warn", help="It runs for so long at most")
    ] = "",
    uptime_critical: Annotated[str, typer.Option("--uptime-critical")] = "",
    auth_required: Annotated[
        bool, typer.Option("--auth-required", help="It has to ask who somebody is")
    ] = False,
    tls_required: Annotated[
        bool, typer.Option("--tls-required", help="It has to ask for TLS")
    ] = False,
    js_required: Annotated[
        bool, typer.Option("--js-required", help="It has to have JetStream")
    ] = False,
    tls_cert_warn: Annotated[
        str, typer.Option("--tls-cert-warn", help="Its certificate ends so soon")
    ] = "",
    tls_cert_critical: Annotated[
        str, typer.Option("--tls-cert-crit", "--tls-cert-critical", help="So soon")
    ] = "",
) -> None:
    """A server's figures and how it is configured (system account)."""
    check.item = name
    wanted = {"server_name": name, "exact_match": True}
    async with connection() as nc:
        answers = await ask_servers(nc, "$SYS.REQ.SERVER.PING.VARZ", body=wanted)
    found = next((one["data"] for one in answers if one["server"].get("name") == name), None)
    if found is None:
        raise ConfigError(f"no server {name} answered; {SYSTEM_HELP}")
    began, now = (_moment_of(found[field]) for field in ("start", "now"))
    check.value("uptime", (now - began).total_seconds(), duration(uptime_warn),
                duration(uptime_critical), "s", Wrong.LOW)  # fmt: skip
    check.value("cpu", found.get("cpu", 0), cpu_warn, cpu_critical, "%")
    check.value("mem", found.get("mem", 0), mem_warn, mem_critical)
    check.value("connections", found.get("connections", 0), conn_warn, conn_critical,
                wrong=Wrong.EITHER)  # fmt: skip
    check.value("subscriptions", found.get("subscriptions", 0), subs_warn, subs_critical,
                wrong=Wrong.EITHER)  # fmt: skip
    has = {
        "asks nobody who he is": not auth_required or found.get("auth_required"),
        "does without TLS": not tls_required or found.get("tls_required"),
        "has no JetStream": not js_required or (found.get("jetstream") or {}).get("config"),
    }
    for text, is_right in has.items():
        check.expect(bool(is_right), f"the server {text}")
    if tls_cert_warn or tls_cert_critical:
        ends = found.get("tls_cert_not_after")
        if not ends:
            check.fail("the server does not say when its certificate ends")
            return
        left = (_moment_of(ends) - now).total_seconds()
        _check_left(check, "tls_cert", left, tls_cert_warn, tls_cert_critical)


@checking("meta", "JetStream Meta Cluster")
async def check_meta(
    check: Check,
    expect: Annotated[int, typer.Option("--expect", help="How many servers there should be")],
    lag_critical: Annotated[int, typer.Option("--lag-critical", help="One is more behind")],
    seen_critical: Annotated[str, typer.Option("--seen-critical", help="Silent for longer")],
) -> None:
    """The servers of a group or a cluster, as its leader knows them (system account)."""
    async with connection() as nc:
        answers = await ask_servers(nc, "$SYS.REQ.SERVER.PING.JSZ", body={"leader_only": True})
    found = next((meta for one in answers if (meta := one["data"].get("meta_cluster"))), None)
    if found is None:
        raise ConfigError(f"no server that leads a cluster answered; {SYSTEM_HELP}")
    others = found.get("replicas") or []
    check.value("peers", len(others) + 1)
    check.expect(len(others) + 1 == expect, f"{len(others) + 1} servers, not {expect}")
    bound = duration(seen_critical)
    counts = {
        "offline": sum(bool(one.get("offline")) for one in others),
        "not current": sum(not one["current"] for one in others),
        "inactive": sum(one["active"] / SECOND > bound > 0 for one in others),
        "lagged": sum(one.get("lag", 0) > lag_critical > 0 for one in others),
    }
    for what, count in counts.items():
        check.value(f"peer_{what.replace(' ', '_')}", count)
        check.expect(not count, f"{count} servers are {what}")


def _moment_of(text: object) -> Timestamp:
    found = Timestamp.parse(str(text))
    if found is None:
        raise ConfigError(f'the server\'s answer has "{text}" where a time should be')
    return found


def _check_left(check: Check, name: str, left: float, warn: str, critical: str) -> None:
    """Something that ends: how long it still lasts, which may be too short."""
    check.value(name, left, unit="s")
    for status, bound in ((CRITICAL, critical), (WARNING, warn)):
        if bound and left < duration(bound):
            check.fail(f"{name} ends in {show_duration(max(left, 0))}", status)
            return


@checking("credential", "NATS Credential")
async def check_credential(
    check: Check,
    credential: Annotated[Path, typer.Option("--credential", help="The credentials file")],
    validity_warn: Annotated[str, typer.Option("--validity-warn", help="It ends so soon")] = "",
    validity_critical: Annotated[str, typer.Option("--validity-critical")] = "",
    require_expiry: Annotated[
        bool, typer.Option("--require-expiry/--no-require-expiry", help="It has to end at all")
    ] = True,
) -> None:
    """How long a credentials file is still valid; no server is asked."""
    import base64

    check.item = "Credential"
    try:
        text = credential.read_text()
    except OSError as error:
        raise ConfigError(f"the credential {credential} cannot be read: {error}") from error
    match = re.search(r"BEGIN NATS USER JWT-+\s+([\w-]+)\.([\w-]+)\.", text)
    if match is None:
        raise ConfigError(f"{credential} holds no user JWT")
    claims = msgspec.json.decode(base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4)))
    ends = claims.get("exp") or 0
    if not ends:
        check.expect(not require_expiry, "it never ends")
        return
    left = ends - time.time()
    check.expect(left > 0, "it has ended")
    _check_left(check, "validity", left, validity_warn, validity_critical)
