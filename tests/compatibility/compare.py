"""Running the corpus against a server and comparing what two servers said."""

import re
import time
from dataclasses import dataclass
from typing import Any

from tests.compatibility.corpus import Entry
from tests.compatibility.raw_client import RawClient, Reply

# Values that two runs of the same server do not share either.
VOLATILE_KEYS = {
    "created", "ts", "first_ts", "last_ts", "last_active", "time", "leader", "pause_remaining",
    "_nats.ver", "_nats.level", "reserved_memory", "reserved_storage", "active",
}  # fmt: skip
VOLATILE_SIZES = {"memory", "storage"}  # as numbers; a configuration's storage is a word
MISSING = "(missing)"
NO_ANSWER_SECONDS = 3.0  # after which a request is taken to have no answer
LATE_SECONDS = 30.0
PATIENCE_SECONDS = 30.0
READS = ("STREAM.INFO.", "STREAM.LIST", "CONSUMER.INFO.", "CONSUMER.LIST.")
VOLATILE_HEADERS = re.compile(rb"(Nats-Time-Stamp: )[^\r]*")
ACK_TIME = re.compile(r"^(\$JS\.ACK(?:\.[^.]+){5})\.\d+\.(\d+)$")


def normalise(value: Any) -> Any:
    """`value` without what may differ between two runs."""
    if isinstance(value, dict):
        found = {k: "*" if _is_volatile(k, v) else normalise(v) for k, v in value.items()}
        if isinstance(found.get("sources"), list):  # shown in an order of chance
            found["sources"].sort(key=repr)
        return found
    if isinstance(value, list):
        return [normalise(item) for item in value]
    return value


def _is_volatile(key: str, value: Any) -> bool:
    return key in VOLATILE_KEYS or (key in VOLATILE_SIZES and isinstance(value, int))


def describe(message: Reply) -> dict[str, Any]:
    """A message as comparable data."""
    return {
        "subject": "" if message.subject.startswith("_INBOX") else message.subject,
        "reply": ACK_TIME.sub(r"\1.*.\2", message.reply),
        "header": VOLATILE_HEADERS.sub(rb"\1*", message.header).decode("latin-1"),
        "body": message.body.decode("latin-1"),
    }


def pull(client: RawClient, subject: str, body: Any) -> list[dict[str, Any]]:
    """A pull request's messages up to and with the status that ends it, or a full batch."""
    wanted = (body.get("batch") or 1) if isinstance(body, dict) else 1
    return [describe(reply) for reply in client.pull("$JS.API." + subject, body, wanted)]


def run_on_both(entry: Entry, ours: RawClient, theirs: RawClient) -> tuple[Any, Any]:
    """One entry's outcomes on both servers as comparable data.

    Some requests get no answer. If only one server has none, it may be late. nats-server does some
    things after it has answered: what it says of its state is looked at again until it is the same.
    """
    kind, subject, body, headers = entry
    if kind == "pull":
        return pull(ours, subject, body), pull(theirs, subject, body)
    outcomes = _run_on_both(entry, ours, theirs)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while subject.startswith(READS) and outcomes[0] != outcomes[1] and time.monotonic() < deadline:
        time.sleep(0.01)
        reply = theirs.request("$JS.API." + subject, body, headers)
        outcomes = outcomes[0], _outcome(kind, reply)
    return outcomes


def _run_on_both(entry: Entry, ours: RawClient, theirs: RawClient) -> tuple[Any, Any]:
    kind, subject, body, headers = entry
    full = subject if kind == "pub" else "$JS.API." + subject
    clients = (ours, theirs)
    replies = [client.request(full, body, headers, NO_ANSWER_SECONDS) for client in clients]
    if replies.count(None) == 1:
        replies = [
            reply or client.answer(LATE_SECONDS)
            for client, reply in zip(clients, replies, strict=True)
        ]
    return _outcome(kind, replies[0]), _outcome(kind, replies[1])


def _outcome(kind: str, reply: Reply | None) -> Any:
    if reply is None:
        return "no answer"
    if kind == "direct":
        return describe(reply)
    answer = normalise(reply.json())
    subjects = answer.get("config", {}).get("subjects") or ()
    if any(subject.startswith("$JS.EVENT.") for subject in subjects):
        answer["state"] = "*"  # it hears of its own creation, before or after it answers
    return answer


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of an outcome, such as `error.description`, that the servers do not fill alike."""

    field: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.ours!r}, nats-server has {self.theirs!r}"


def differences(ours: Any, theirs: Any, field: str = "") -> list[Difference]:
    """Where two outcomes differ; MISSING stands for a field that one of them does not have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            difference
            for key in sorted(set(ours) | set(theirs))
            for difference in differences(
                ours.get(key, MISSING), theirs.get(key, MISSING), f"{field}.{key}".lstrip(".")
            )
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{field}[{i}]")]
    return [] if ours == theirs else [Difference(field, ours, theirs)]
