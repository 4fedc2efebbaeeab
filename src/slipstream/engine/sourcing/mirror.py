"""A mirror: a copy of another stream, with its sequences and times.

Where the upstream has no message, the mirror has none either. So the mirror's own log says where to
go on: after its last sequence, whatever happened to either of the two streams.
"""

from typing import TYPE_CHECKING, Any

from slipstream.engine.protocol.configurations import StreamSource
from slipstream.engine.session.message import Inbound
from slipstream.engine.sourcing.feed import Feed, without_conditions
from slipstream.engine.sourcing.storing import store
from slipstream.engine.stream.direct_get import DirectGet
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import NATS_PREFIX
from slipstream.wire.headers import count_prefix

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamSourceInfo
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

CAUGHT_UP: _int = 10  # with fewer messages to come, a mirror answers direct gets for its upstream
SKIPPED_ONE_BY_ONE_MAX: _int = 65_536  # a longer gap begins a new segment


class Mirror(Feed):
    """Makes `stream` a mirror."""

    kind = "MIRROR"
    letter = "M"
    metadata = "_nats.mirror"
    levels = (b"4", b"")
    requires_flow_acks = ErrorCode.MIRROR_CONSUMER_REQUIRES_ACK_FC

    def __init__(self, stream: "Stream", source: StreamSource) -> None:
        super().__init__(stream, source)
        self.position = stream.log.last_seq
        self._direct: DirectGet | None = None
        self._answers_direct = stream.config.mirror_direct

    def start(self) -> dict[str, Any]:
        last = self.stream.log.last_seq
        if last:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": last + 1}
        return super().start()

    def begun(self, delivered: _int, pending: _int) -> None:
        self.position = self.stream.log.last_seq
        if delivered > self.position:
            self._skip_to(delivered, self.stream.log.last_ts)
        self._look_at_direct(pending)

    def take(self, seq: _int, ts: _int, message: Inbound) -> None:
        stream = self.stream
        if seq > stream.log.last_seq + 1:
            self._skip_to(seq - 1, ts)
        taken = message
        start, end = message.header_start, message.body_start
        if end > start and count_prefix(message.data, start, end, NATS_PREFIX):
            block = message.header()
            kept = without_conditions(block)
            if kept is not block:
                taken = Inbound(message.subject, b"", kept, message.body())
        store(stream, self.subject_of(message.subject), taken, ts)
        if self._answers_direct and self._direct is None:
            self._look_at_direct(self.lag)

    def _skip_to(self, seq: _int, ts: _int) -> None:
        """The upstream has nothing more up to `seq`."""
        log = self.stream.log
        gap = seq - log.last_seq
        if log.messages == 0 or gap > SKIPPED_ONE_BY_ONE_MAX:
            log.advance(seq)
        else:
            for _ in range(gap):
                log.skip(ts)
        self.position = seq
        self.stream.mark_dirty()

    def replaced(self) -> None:
        stream = self.stream
        stream.engine.on_problem(
            f"stream '{self.account.name} > {stream.name}' mirrors '{self.source.name}', which was "
            f"deleted and made anew: the mirror goes on with message {stream.log.last_seq + 1}, "
            "and does not get what has the sequences before that"
        )

    def _look_at_direct(self, pending: _int) -> None:
        """Answer direct gets for the upstream once there is little left to come."""
        if self._answers_direct and self._direct is None and pending < CAUGHT_UP:
            self._direct = DirectGet(self.stream, self.source.name)

    def configured(self) -> None:
        """The stream's configuration has changed."""
        self._answers_direct = self.stream.config.mirror_direct
        if not self._answers_direct and self._direct is not None:
            self._direct.stop()
            self._direct = None

    def info(self) -> "StreamSourceInfo":
        shown = super().info()
        if self.source.filter_subject and self.has_asked:
            shown["filter_subject"] = self.source.filter_subject
        return shown

    def stop(self, delete: bool = False) -> None:
        super().stop(delete)
        if self._direct is not None:
            self._direct.stop()
            self._direct = None
