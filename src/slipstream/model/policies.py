"""The words from which configurations choose.

docs/protocol/streams.md#configuration and docs/protocol/consumers.md#configuration have them all.
"""

from typing import Literal, TypeAlias, get_args

Retention: TypeAlias = Literal["limits", "interest", "workqueue"]
Storage: TypeAlias = Literal["file", "memory"]
Discard: TypeAlias = Literal["old", "new"]
Compression: TypeAlias = Literal["none", "s2"]
PersistMode: TypeAlias = Literal["default", "async"]
DeliverPolicy: TypeAlias = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy: TypeAlias = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy: TypeAlias = Literal["instant", "original"]
PriorityPolicy: TypeAlias = Literal["none", "overflow", "pinned_client", "prioritized"]

RETENTIONS: tuple[Retention, ...] = get_args(Retention)
STORAGES: tuple[Storage, ...] = get_args(Storage)
DISCARDS: tuple[Discard, ...] = get_args(Discard)
COMPRESSIONS: tuple[Compression, ...] = get_args(Compression)
PERSIST_MODES: tuple[PersistMode, ...] = get_args(PersistMode)
DELIVER_POLICIES: tuple[DeliverPolicy, ...] = get_args(DeliverPolicy)
ACK_POLICIES: tuple[AckPolicy, ...] = get_args(AckPolicy)
REPLAY_POLICIES: tuple[ReplayPolicy, ...] = get_args(ReplayPolicy)
PRIORITY_POLICIES: tuple[PriorityPolicy, ...] = get_args(PriorityPolicy)
