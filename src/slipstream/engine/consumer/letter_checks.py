"""Which consumers may have dead letters, and where these may go. nats-server has no such field."""

from typing import TYPE_CHECKING

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.consumer.dead_letters import is_own
from slipstream.engine.protocol.errors import ApiError
from slipstream.model.error_codes import ErrorCode
from slipstream.wire.subjects import is_literal

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream

ACK_PENDING_MAX = 40_000  # with each dead letter goes the position, which is to fit into one commit
FOLLOWED_MAX = 100  # streams that one chain of dead letters is followed through


def check_dead_letter(stream: "Stream", config: ConsumerConfig) -> None:
    """Raises `ApiError` CONSUMER_CREATE."""
    subject = config.dead_letter
    if not is_literal(subject.encode()):
        raise _refusal(f"{subject!r} is not a subject without wildcards")
    if config.direct or config.sourcing or config.ack_policy != "explicit":
        raise _refusal("needs ack policy explicit")
    if not 0 < config.max_ack_pending <= ACK_PENDING_MAX:
        raise _refusal(f"needs max ack pending of 1 to {ACK_PENDING_MAX}")
    target: Stream | None = stream.js.stream_of(subject)
    if target is None:
        raise _refusal(f"no stream stores the subject {subject}, create one first")
    if target.config.sealed:
        raise _refusal(f"the stream {target.name}, which stores {subject}, is sealed")
    if target.config.allow_msg_counter or target.config.allow_msg_schedules:
        raise _refusal(f"the stream {target.name}, which stores {subject}, is for other messages")
    _check_loop(stream, config, target)


def _check_loop(stream: "Stream", config: ConsumerConfig, target: "Stream") -> None:
    """Dead letters of dead letters may not come back to the consumer."""
    stored = [(target, config.dead_letter)]
    seen = {config.dead_letter}
    while stored and len(seen) <= FOLLOWED_MAX:
        at, subject = stored.pop()
        if at is stream and is_own(config.filters, subject):
            raise _refusal(f"the consumer would be given its own dead letters, on {subject}")
        for consumer in at.consumers.values():
            following = consumer.config.dead_letter
            if following and following not in seen and is_own(consumer.filters, subject):
                seen.add(following)
                onward = at.js.stream_of(following)
                if onward is not None:
                    stored.append((onward, following))


def _refusal(text: str) -> ApiError:
    return ApiError(ErrorCode.CONSUMER_CREATE, err=f"consumer dead letter {text}")
