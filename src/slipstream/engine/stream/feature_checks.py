"""Which features a stream may have together, in nats-server's order and words
(docs/protocol/streams.md#configuration)."""

from slipstream.engine.protocol.errors import config_error
from slipstream.engine.stream.config import StreamConfig


def check_counter_configuration(config: StreamConfig) -> None:
    """What a stream of counters may not have. Raises `ApiError`."""
    if not config.allow_msg_counter:
        return
    if config.discard == "new":
        raise config_error("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise config_error("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise config_error("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise config_error("counter stream can only use limits retention")


def check_feature_configuration(config: StreamConfig) -> None:
    """Counters, batches, schedules and how messages become durable. Raises `ApiError`."""
    if config.allow_msg_schedules:
        if config.discard == "new":
            raise config_error("message scheduling cannot use discard new")
        if config.pedantic and not config.allow_rollup_hdrs:
            raise config_error("message scheduling cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs = True
        config.deny_purge = False
    if config.persist_mode == "async":
        if config.storage != "file":
            raise config_error("async persist mode is only supported on file storage")
        if config.allow_atomic:
            raise config_error("async persist mode is not supported with atomic batch publish")
