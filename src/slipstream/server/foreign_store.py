"""Recognising a store directory of nats-server, which keeps streams in files of its own kind.

<store_dir>/jetstream/<account>/streams/<stream>/meta.inf
                                                 msgs/<n>.blk
"""

import os
from collections.abc import Iterator

_ADVICE = (
    "Slipstream keeps streams in files of its own: give it another directory (-sd, store_dir), and "
    "take the streams over with `slipstream store import {source} <that directory>`"
)


def foreign_store(directory: str) -> str:
    """Why a store directory is none of Slipstream's, with what to do about it; "" if it may be."""
    for _, found in foreign_streams(directory):
        advice = _ADVICE.format(source=directory)
        return (
            f"{directory} is a store directory of nats-server ({found} is a stream of it). {advice}"
        )
    return ""


def foreign_streams(directory: str) -> Iterator[tuple[str, str]]:
    """Account and directory of each stream that nats-server has in a store directory."""
    for account in _directories(os.path.join(directory, "jetstream")):
        for stream in _directories(os.path.join(account, "streams")):
            messages = os.path.join(stream, "msgs")
            has_blocks = os.path.isdir(messages) and any(
                name.endswith(".blk") for name in os.listdir(messages)
            )
            if has_blocks or os.path.exists(os.path.join(stream, "meta.inf")):
                yield os.path.basename(account), stream


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
