"""A stream's configuration: reading, filling in defaults, and how it stands in responses.

Its fields are declared in `model/configurations.py`; the checks are in `checks`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from slipstream.engine.protocol import configurations
from slipstream.engine.protocol.configurations import Placement
from slipstream.engine.protocol.json_body import convert, decode
from slipstream.engine.protocol.options import REQUIRED_LEVEL, kept_metadata
from slipstream.model.durations import SECOND
from slipstream.model.policies import PERSIST_MODES

DUPLICATE_WINDOW = 120 * SECOND


class StreamConfig(configurations.StreamConfig, kw_only=True):
    """What was asked for, with defaults filled in; sizes in bytes, times in ns, -1 is no bound."""

    words: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **configurations.StreamConfig.words,
        "persist_mode": (*PERSIST_MODES, ""),
    }

    pedantic: bool = False  # only of a request, never kept

    def emit(self) -> dict[str, Any]:
        """As it is kept and as responses show it (without the dynamic metadata)."""
        emitted = super().emit()
        emitted.pop("pedantic", None)
        emitted["metadata"] = {**self.metadata, REQUIRED_LEVEL: str(required_level(self))}
        return emitted


def read_config(body: bytes, strict: bool) -> StreamConfig:
    """A create or update request. Raises `ApiError` INVALID_JSON."""
    config: StreamConfig = convert(decode(body), StreamConfig, StreamConfig.words, strict)
    return config


def load_config(raw: dict[str, Any]) -> StreamConfig:
    """A configuration as `StreamConfig.emit` gave it, of this version as a rule."""
    try:
        return msgspec.convert(raw, StreamConfig)
    except msgspec.ValidationError:
        config: StreamConfig = convert(dict(raw), StreamConfig, StreamConfig.words)
        return config


def load_restored(raw: dict[str, Any], strict: bool) -> StreamConfig:
    """The configuration of a stream that is to be restored. Raises `ApiError` INVALID_JSON."""
    config: StreamConfig = convert(raw, StreamConfig, StreamConfig.words, strict)
    return config


def fill_defaults(config: StreamConfig, window_limit: int) -> str:
    """Replace what says nothing by what it means; what made the duplicate window shrink, or ""."""
    for name in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        if getattr(config, name) == 0 or getattr(config, name) < -1:
            setattr(config, name, -1)
    if config.num_replicas == 0:
        config.num_replicas = 1
    takes_over = config.mirror is not None or bool(config.sources)
    if not config.subjects and not takes_over:
        config.subjects = [config.name]
    if config.placement == Placement():
        config.placement = None
    if config.persist_mode == "":
        config.persist_mode = "default"
    config.metadata = kept_metadata(config.metadata)
    shrunk = ""
    if config.duplicate_window == 0 and not takes_over:
        config.duplicate_window = DUPLICATE_WINDOW
        if 0 < config.max_age < DUPLICATE_WINDOW:
            config.duplicate_window = config.max_age
            shrunk = "duplicate window cannot be bigger than max age"
        if 0 < window_limit < config.duplicate_window:
            config.duplicate_window = window_limit
            shrunk = "duplicate window limits are higher than current limits"
    return shrunk


def seal(config: StreamConfig) -> None:
    """What else is so in a stream that becomes sealed."""
    config.max_age = 0
    config.discard = "new"
    config.deny_delete = config.deny_purge = True
    config.allow_rollup_hdrs = False


def required_level(config: StreamConfig) -> int:
    """The lowest API level of a server that has all that the stream needs."""
    if config.allow_batched:
        return 4
    features = (config.allow_atomic, config.allow_msg_counter, config.allow_msg_schedules)
    if any(features) or config.persist_mode == "async":
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def same(a: StreamConfig, b: StreamConfig) -> bool:
    """Whether two configurations ask for the same stream."""
    return a.emit() == b.emit()
