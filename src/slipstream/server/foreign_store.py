"""Recognising a store directory of nats-server, which keeps streams in files of its own kind.

<store_dir>/jetstream/<account>/streams/<stream>/meta.inf
                                                 msgs/<n>.blk
"""

import os

_ADVICE = (
    "Slipstream keeps streams in files of its own: give it another directory (-sd, store_dir). "
    "To move the streams, start nats-server on this one, back each up with `slipstream stream "
    "backup`, and restore it here with `slipstream stream restore`"
)


def foreign_store(directory: str) -> str:
    """Why a store directory is none of Slipstream's, with what to do about it; "" if it may be."""
    found = _stream_of_nats_server(os.path.join(directory, "jetstream"))
    if not found:
        return ""
    return f"{directory} is a store directory of nats-server ({found} is a stream of it). {_ADVICE}"


def _stream_of_nats_server(root: str) -> str:
    """The path of one, "" if there is none."""
    for account in _directories(root):
        for stream in _directories(os.path.join(account, "streams")):
            if os.path.exists(os.path.join(stream, "meta.inf")):
                return stream
            messages = os.path.join(stream, "msgs")
            if os.path.isdir(messages) and any(f.endswith(".blk") for f in os.listdir(messages)):
                return stream
    return ""


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
