"""The options of the sink; those of the connection are in `slipstream.spark.options`."""

from typing import Literal

from slipstream.errors import ConfigError
from slipstream.spark.options import Count, ServerOptions

Mode = Literal["", "at-least-once", "deduplicated", "exactly-once"]


class SinkOptions(ServerOptions, kw_only=True, frozen=True, rename="camel", omit_defaults=True):
    """Where rows go, and with which guarantee.

    mode: by default "exactly-once" for a streaming query, and for a batch write with a writer_id,
        into a stream that allows it; else "deduplicated" where rows have an identity that outlives
        the write; else "at-least-once". The choice is logged.
    writer_id: the name under which progress is kept and ids are made; by default the query's id,
        which its checkpoint keeps. Batch writes in mode exactly-once need one. Two queries, and two
        checkpoints of a query, need different ones.
    progress_prefix: where in the stream an earlier version has kept its markers; by default below
        ``_slipstream.progress.<stream>``. Progress is now in a stream of its own.
    dead_letter_subject: where rows go that cannot be stored, instead of failing the query.
    """

    stream: str = ""
    subject: str = ""
    bucket: str = ""
    mode: Mode = ""
    writer_id: str = ""
    progress_prefix: str = ""
    dead_letter_subject: str = ""
    max_ack_pending: Count = 4000


def check_sink(options: SinkOptions) -> None:
    """Raise `ConfigError` for options that contradict each other."""
    if options.bucket and (options.stream or options.subject or options.mode == "exactly-once"):
        raise ConfigError(
            "jetstream: the option bucket upserts keys and takes no stream, subject, or mode "
            "exactly-once: an upsert that is repeated changes nothing"
        )
    if options.mode == "exactly-once" and not options.stream:
        raise ConfigError("jetstream: mode exactly-once needs the option stream")
    if options.writer_id and not options.writer_id.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(
            f"jetstream: option writerId is {options.writer_id!r}: it becomes a token of a "
            "subject; use letters, digits, - and _"
        )
