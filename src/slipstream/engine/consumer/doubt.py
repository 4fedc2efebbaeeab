"""Configurations that may be older than what was saved last, because a copy of one is damaged.

Each is reported by `healthz`, in the server's log and by an advisory that is repeated, until
somebody has looked: a successful update or the deletion settles it. Meanwhile the limits of such a
stream remove nothing, and an interest stream keeps what such a consumer may still need.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.stream.owner import Owner
from slipstream.engine.stream.retention import drop_settled, drop_unneeded, thinned
from slipstream.model.durations import SECOND

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer
    from slipstream.engine.stream.stream import Stream

ADVISE_EVERY_NS = 60 * SECOND


class Doubts:
    """What is in doubt in one account."""

    def __init__(self, js: Owner) -> None:
        self._js = js
        self._reports: dict[tuple[str, str], tuple[str, str]] = {}  # text and reason, by names
        self._timer: Any = None

    def of(self, stream: str, consumer: str = "") -> str:
        """What is reported of a stream, or of one of its consumers; "" for nothing."""
        return self._reports.get((stream, consumer), ("", ""))[0]

    def report(self, stream: str, consumer: str, text: str, reason: str) -> None:
        """Report it from now on."""
        self._reports[stream, consumer] = (text, reason)
        self._js.problem(text)
        self._js.report_damage(text)
        self._advise()

    def resolved(self, stream: str, consumer: str = "") -> None:
        """A doubt has ended."""
        found = self._reports.pop((stream, consumer), None)
        if found is not None:
            self._js.resolve(found[0])

    def forget(self, stream: str) -> None:
        """A stream was deleted, with its consumers."""
        for of_stream, consumer in list(self._reports):
            if of_stream == stream:
                self.resolved(stream, consumer)

    def _advise(self) -> None:
        if self._timer is None:
            self._timer = self._js.engine.timers.after(ADVISE_EVERY_NS, self._advise_again)
        for (stream, consumer), (_, reason) in self._reports.items():
            self._js.advisories.fallback(stream, consumer, reason)

    def _advise_again(self) -> None:
        self._timer = None
        if self._reports:
            self._advise()

    def stop(self) -> None:
        """Report nothing any more."""
        if self._timer is not None:
            self._timer.cancel()


def doubt_stream(stream: "Stream", reason: str) -> None:
    """The configuration that `stream` was started with may be an older one."""
    stream.doubt = reason
    stream.configure(stream.config)
    stream.js.doubts.report(
        stream.name,
        "",
        f"JetStream stream '{stream.account.name} > {stream.name}' may have an older "
        f"configuration, because {reason}: its limits remove nothing until it is updated, "
        "see docs/storage.md",
        reason,
    )


def trust_stream(stream: "Stream") -> None:
    """Somebody has updated the stream: its configuration is what it is to be."""
    if stream.doubt:
        stream.doubt = ""
        stream.configure(stream.config)
        stream.js.doubts.resolved(stream.name)
        remove_acknowledged(stream)


def doubt_consumer(stream: "Stream", name: str, reason: str, is_lost: bool) -> None:
    """The configuration of a consumer may be an older one or, with `is_lost`, is not readable."""
    where = f"JetStream consumer '{stream.account.name} > {stream.name} > {name}'"
    if is_lost:
        text = f"{where} could not be recovered: {reason}; create it anew, or delete it"
    else:
        text = f"{where} may have an older configuration, because {reason}: update it, or delete it"
    stream.doubtful.add(name)
    stream.js.doubts.report(stream.name, name, f"{text}, see docs/storage.md", reason)


def trust_consumer(stream: "Stream", name: str) -> None:
    """Somebody has created, updated or deleted the consumer."""
    if name in stream.doubtful:
        stream.doubtful.discard(name)
        stream.js.doubts.resolved(stream.name, name)
        if not stream.doubtful:
            remove_acknowledged(stream)


def go_back(consumer: "Consumer", position: tuple[int, int]) -> None:
    """Deliver again what a consumer may have passed over by an older configuration.

    `position` is where it was when the server started: its floor and its next sequence.
    """
    floor, following = position
    if consumer.next_seq > following or consumer.floor_stream_seq > floor:
        consumer.life.restart_at(floor + 1)


def remove_acknowledged(stream: "Stream") -> None:
    """Acknowledgements that removed nothing while there was doubt take effect."""
    retention = stream.config.retention
    if stream.doubt or retention == "limits":
        return
    if stream.consumers:
        drop_settled(stream)
    elif retention == "interest":
        drop_unneeded(stream)
    thinned(stream)
