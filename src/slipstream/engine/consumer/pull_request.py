"""What a pull request may ask for, and why one is refused
(docs/protocol/consumers.md#pull-requests)."""

from functools import lru_cache

import msgspec

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.consumer.priority import OVERFLOW, PINNED
from slipstream.engine.protocol.json_body import Int64, go_words_lenient, read_lenient, read_number
from slipstream.model.durations import LONGEST_NS, duration_text
from slipstream.model.header_names import NATS_PENDING_BYTES, NATS_PENDING_MESSAGES

SHORT = 256  # bytes of a body that is worth remembering: thousands of consumers are asked alike


class PullRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body, read by `read_lenient`. Times in ns, sizes in bytes."""

    batch: Int64 = 0
    expires: Int64 = 0
    no_wait: bool = False
    max_bytes: Int64 = 0
    idle_heartbeat: Int64 = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int64 = 0


def read_request(body: bytes, config: ConsumerConfig) -> PullRequest | str:
    """The request, or the status line that refuses it."""
    asked = _read_short(body) if len(body) <= SHORT else _read(body)
    if isinstance(asked, str):
        return asked
    problem = _beyond_limits(asked, config)
    if not problem and body.lstrip().startswith(b"{"):  # a number alone names no group
        problem = _priority_problem(asked, config)
    return problem or _expired(asked) or asked


def _read(body: bytes) -> PullRequest | str:
    """What is asked of whatever consumer, or the status line that any refuses it with. Nobody
    changes it."""
    text = body.strip()
    if not text.startswith(b"{"):
        number = read_number(text)
        return PullRequest(batch=number if number >= 0 else 1)
    try:
        asked = read_lenient(text, PullRequest)
    except msgspec.MsgspecError as error:
        return f"400 Bad Request - {go_words_lenient(error)}"
    asked.expires = min(asked.expires, LONGEST_NS)
    asked.idle_heartbeat = max(asked.idle_heartbeat, 0)
    if asked.idle_heartbeat and asked.idle_heartbeat * 2 > asked.expires:
        return "400 Bad Request - heartbeat value too large"
    return asked


_read_short = lru_cache(maxsize=256)(_read)


def _expired(asked: PullRequest) -> str:
    """What a request gets whose time was over when it was made; "" for all others."""
    if asked.expires >= 0:
        return ""
    left = f"{NATS_PENDING_MESSAGES}: {asked.batch}\r\n{NATS_PENDING_BYTES}: {asked.max_bytes}"
    return f"408 Request Timeout\r\n{left}"


def _beyond_limits(asked: PullRequest, config: ConsumerConfig) -> str:
    """What the consumer's configuration does not let one request ask for; "" if all is well."""
    if config.max_batch and asked.batch > config.max_batch:
        return f"409 Exceeded MaxRequestBatch of {config.max_batch}"
    if config.max_expires and asked.expires > config.max_expires:
        return f"409 Exceeded MaxRequestExpires of {duration_text(config.max_expires)}"
    if config.max_bytes and asked.max_bytes > config.max_bytes:
        return f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}"
    return ""


def _priority_problem(asked: PullRequest, config: ConsumerConfig) -> str:
    """What is wrong with the fields that priority groups have; "" if all is well."""
    policy = config.priority_policy
    if (asked.min_pending or asked.min_ack_pending) and policy != OVERFLOW:
        return "400 Bad Request - Not a Overflow Priority consumer"
    if asked.id and policy != PINNED:
        return "400 Bad Request - Not a Pinned Client Priority consumer"
    if not 0 <= asked.priority <= 9:
        return "400 Bad Request - Priority must be between 0 and 9"
    if policy == "none" or asked.group in config.priority_groups:
        return ""
    if asked.group:
        return "400 Bad Request - Invalid Priority Group"
    return "400 Bad Request - Priority Group missing"
