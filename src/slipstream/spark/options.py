"""The options of source and sink, typed once; named as in Spark's Kafka source where it has one.

Spark gives options as text, with names in any case. `parse` turns them into a `SourceOptions`, or
into the `SinkOptions` of `slipstream.spark.sink`, and says for an unknown name which one is the
nearest. Secrets never show in a repr.
"""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from slipstream.client.options import ConnectOptions, make_options
from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND, parse_duration

Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]

KAFKAS = {
    "kafka.bootstrap.servers": "servers",
    "subscribe": "stream",
    "assign": "stream, and subjects for a part of it",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "maxrecordsperpartition": "maxMessagesPerPartition",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "kafkaconsumer.polltimeoutms": "requestTimeout and retryTimeout",
    "fetchoffset.numretries": "retryTimeout",
    "fetchoffset.retryintervalms": "retryTimeout",
    "groupidprefix": "commitDurable, which shows a position and does not hold it",
    "kafka.group.id": "commitDurable, which shows a position and does not hold it",
    "topic": "subject",
    "kafka.transactional.id": "writerId, with mode exactly-once",
    "kafka.enable.idempotence": "mode",
    "kafka.max.in.flight.requests.per.connection": "maxAckPending",
    "kafka.request.timeout.ms": "requestTimeout, in seconds",
    "kafka.delivery.timeout.ms": "retryTimeout, in seconds",
}
"""What options of Spark's Kafka source and sink, in lower case, are called here."""

SECRETS = ("password", "token", "nkey_seed")
DEFAULT_SERVERS = "nats://127.0.0.1:4222"


class ServerOptions(msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """How to reach the server and who we are; common to source and sink. Times are seconds."""

    servers: str = DEFAULT_SERVERS
    user: str = ""
    password: str = ""
    token: str = ""
    nkey_seed: str = ""
    credentials: str = ""
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_hostname: str = ""
    tls_handshake_first: bool = False
    domain: str = ""
    inbox_prefix: str = "_INBOX"
    connect_timeout: Positive = 5.0
    request_timeout: Positive = 5.0
    retry_timeout: Positive = 60.0  # without progress, before a task fails

    @property
    def server_list(self) -> list[str]:
        """The URLs."""
        return [part.strip() for part in self.servers.split(",") if part.strip()]

    def connect_options(self, name: str) -> ConnectOptions:
        """What `slipstream.connect` is given. Raises `ConfigError` for contradictions."""
        given: dict[str, Any] = {"name": name, "inbox_prefix": self.inbox_prefix}
        given["connect_timeout"] = self.connect_timeout
        given["timeout"] = self.request_timeout
        for field in ("user", "password", "token", "nkey_seed", "credentials"):
            given[field] = getattr(self, field)
        for field in ("tls_ca", "tls_certificate", "tls_key", "tls_hostname"):
            given[field] = getattr(self, field)
        given["tls_handshake_first"] = self.tls_handshake_first
        return make_options(ConnectOptions(), **given)

    def __repr__(self) -> str:
        shown = []
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if field in SECRETS and value:
                value = "*****"
            elif field == "servers":
                value = ",".join(_without_password(url) for url in self.server_list)
            if value != "" and value is not None:
                shown.append(f"{field}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class SourceOptions(ServerOptions, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """What is read, and how it is cut. Offsets are kept as text until the streams are known."""

    stream: str = ""
    subscribe_pattern: str = ""  # of stream names, instead of `stream`
    subjects: str = ""
    starting_offsets: str = ""
    starting_timestamp: str = ""
    ending_offsets: str = ""
    ending_timestamp: str = ""
    push_filters: bool = False
    columns: str = ""
    include_headers: bool = True
    include_size: bool = False
    key_token: int = 0
    min_partitions: CountOrNone = 0
    max_messages_per_partition: CountOrNone = 0
    max_messages_per_trigger: CountOrNone = 0
    min_messages_per_trigger: CountOrNone = 0
    max_trigger_delay: str = "15m"  # a number of seconds, or with a unit: ms, s, m, h
    max_bytes_per_trigger: CountOrNone = 0
    fail_on_data_loss: bool = True
    fetch_messages: Count = 16_384
    fetch_bytes: Count = 8 * 1024 * 1024
    commit_durable: str = ""
    commit_bucket: str = ""
    query_name: str = ""

    @property
    def max_trigger_delay_seconds(self) -> float:
        """Seconds. Raises `ConfigError`."""
        text = self.max_trigger_delay.replace(" ", "")
        ns = parse_duration(text if text[-1:].isalpha() else f"{text}s")
        if ns is None or ns < 0:
            raise ConfigError(
                f"jetstream: option maxTriggerDelay is {self.max_trigger_delay!r}; it is a number "
                "of seconds, or a number with ms, s, m or h, as 15m"
            )
        return ns / SECOND

    @property
    def streams(self) -> list[str]:
        """The streams, in the order given."""
        return _names(self.stream)

    @property
    def subject_list(self) -> list[str]:
        """The subject filters; none means all."""
        return _names(self.subjects)


T = TypeVar("T", bound=ServerOptions)


def parse(kind: type[T], options: Mapping[str, str]) -> T:
    """Typed options from what Spark has. Raises `ConfigError` that names the option."""
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, text in options.items():
        field = fields.get(name.lower())
        if field is None:
            names = [known.encode_name for known in fields.values()]
            raise ConfigError(f"jetstream: there is no option {name!r}; {_nearest(name, names)}")
        value = text.strip()
        if field.type is bool:
            value = value.lower()
        try:
            given[field.encode_name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError as error:
            shown = "*****" if field.name in SECRETS else repr(text)
            raise ConfigError(
                f"jetstream: option {field.encode_name} is {shown}: {error}"
            ) from None
    return msgspec.convert(given, kind)


def _nearest(name: str, known: list[str]) -> str:
    kafkas = KAFKAS.get(name.lower())
    if kafkas:
        return f"what Kafka's {name} sets is set here by {kafkas}"
    if name.lower().startswith("kafka."):
        return "options of Kafka's own clients have no meaning here (docs/spark.md lists ours)"
    lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.5)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    return f"there are {', '.join(sorted(known))}"


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _without_password(url: str) -> str:
    scheme, colon, rest = url.rpartition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{colon}{'*****@' if at and user else ''}{host}"
