"""One end of a leaf node connection, without the socket (docs/protocol/leaf.md).

To the engine it is one more session: what the other server is interested in are its subscriptions,
and what that server sends is published to the account. Only the frames are others, and a message
goes over the link once, however many subscriptions there it is for.

The end that has dialled is a spoke of the other, its hub: it announces no interest that came from
another hub. A remote that is configured with `hub` turns the roles around.
"""

from typing import TYPE_CHECKING, Any, Protocol

import slipstream.wire.ascii as char
from slipstream.engine.leaf.compression import LinkCompression
from slipstream.engine.leaf.handshake import LeafConnect, Remote, handle_line
from slipstream.engine.leaf.interest import Interest
from slipstream.engine.leaf.rights import LinkRights, SubjectRights
from slipstream.engine.session.permissions import quoted
from slipstream.engine.session.routing import Follower, Subscription
from slipstream.engine.session.session import ClientSession, Transport
from slipstream.model.ack_subject import is_ack_subject
from slipstream.wire.leaf_frames import LeafFrames

if TYPE_CHECKING:
    from slipstream.engine.leaf.link_bytes import LinkBytes
    from slipstream.engine.session.message import Inbound

_int = int  # the name `int` in a compiled module's annotations is a C type

_SHARED_MIN: _int = 64 * 1024  # see `session`
_LADEN_MAX: _int = 1024 * 1024
_SERVICE: _int = 8
_CALL: _int = 30


class Watcher(Protocol):
    """Who wants to know how a link fares: the one who dialled, or the listener."""

    def linked(self, session: "LeafSession") -> None:
        """The servers have agreed, and messages flow."""

    def complained(self, session: "LeafSession", text: str, is_own: bool) -> None:
        """Something is wrong: the other server says so, or with `is_own` this one."""

    def discovered(self, urls: list[str]) -> None:
        """The other server names servers that could take its place, as host:port."""

    def wait(self, delay: _int) -> None:
        """Connecting again has no use before so many ns have passed."""


class LeafSession(ClientSession):
    """One link. `remote` says how this end introduces itself; None where the other has dialled."""

    def __init__(
        self,
        engine: Any,
        transport: Transport,
        cid: _int,
        facts: dict[str, Any],
        remote: Remote | None,
        watcher: Watcher,
    ) -> None:
        super().__init__(engine, transport, cid, facts)
        self.remote = remote
        self.watcher = watcher
        self.connect = LeafConnect()
        self.system_account = engine.system_account
        self.packing: LinkBytes | None = None  # None: as they are
        self.is_spoke = remote is not None and not remote.hub
        self.has_info = False  # of the server that was dialled
        self.server = ""  # the other one's name
        self.cluster = ""
        self.domain = ""
        self.remote_account = ""
        self.peer_max_payload = 0  # 0 is not known
        self.peer_payload_limit = 0  # what is taken of it
        nothing = SubjectRights(deny=(b">",))
        self.rights = LinkRights(nothing, nothing)
        self.interest = Interest(self)
        self.verbose = self.pedantic = self.echo = False
        self.headers = not engine.options.no_header_support
        self._greeted = True  # which bytes may come first is not a client's rule
        self._leaf_frames = LeafFrames(0)  # without a login, no payload is waited for
        self._frames = self._leaf_frames
        self._shows_own = True

    def compress(self, wanted: LinkCompression, mode: str) -> None:
        """From here on all bytes are packed, in both directions; what was said before is sent."""
        from slipstream.engine.leaf.link_bytes import LinkBytes  # few servers have links

        self.engine.flush(self)
        self.packing = LinkBytes(wanted, mode, self.clock.now - self.started)
        self.packing.feed(self._leaf_frames.rest())

    # -- input ---------------------------------------------------------------------------------

    def _line(self, op: _int) -> None:
        handle_line(self, op, self._leaf_frames)

    def _publish(self) -> None:
        """LMSG and HMSG."""
        frames = self._leaf_frames
        if not self.ready:
            self.fail(b"Authorization Violation", "Authentication Failure")
            return
        if frames.has_header and not self.headers:
            self.fail(b"", "Message Header Violation")
            return
        size = frames.end - frames.header_start
        self.in_msgs += 1
        self.in_bytes += size
        subject = frames.subject
        if not self.rights.take.permits(subject):
            if not self.is_spoke:  # a spoke was told what it may not send
                self.put_error(b"Permissions Violation for Publish to " + quoted(subject))
            return
        queues: Any = frames.queues
        if self.account.mappings is not None:
            mapped = self.account.mappings.map(subject)
            if mapped != subject:
                subject = mapped
                if queues is None:  # the groups of the mapped subject are not known there
                    queues = self._groups_of(subject)
        if subject is not self._last_subject or self._last_generation != self.account.generation:
            self._last_route = self.account.route(subject)
            self._last_subject = subject
            self._last_generation = self.account.generation
            self._shows_own = not any(
                not isinstance(service, Follower) for service in self._last_route.services
            )
        route = self._last_route
        message = self._inbound
        message.subject = subject
        message.to = b""
        message.reply = reply = frames.reply
        message.data = frames.data
        message.header_start = frames.header_start
        message.body_start = frames.body_start
        message.end = frames.end
        if is_ack_subject(reply):
            at = reply.rfind(b"@")
            if at > 0:  # a consumer's delivery: what follows is the subject in the stream
                message.reply = reply[:at]
                if self._shows_own and at + 1 < len(reply):
                    message.subject = reply[at + 1 :]
                    message.to = subject
        if route.services:
            self.turn.spent += _CALL if subject[0] == char.DOLLAR else _SERVICE
        self.account.dispatch_chosen(route, message, queues)

    def _groups_of(self, subject: bytes) -> list[bytes]:
        route = self.account.route(subject)
        names = [group[0].queue for group in route.queues]
        if route.shared is not None:
            names += [group.queue for group in route.shared.groups]
        return names

    # -- output --------------------------------------------------------------------------------

    def deliver(self, subscription: Subscription, subject: bytes, message: "Inbound") -> bool:
        """Send `message`, for everybody there who is in no queue group."""
        if subscription.closed or not self.can_forward(message):
            return False
        subscription.delivered += 1
        return self._send(message, b"")

    def can_forward(self, message: "Inbound") -> bool:
        """Whether `message` may go over the link; it never goes back where it came from."""
        source = message.session
        if self.closed or source is self or (self.behind and source is not None):
            return False
        if 0 < self.peer_max_payload < message.end - message.header_start:
            return False
        if self.cluster and source is not None and self._is_of_same_cluster(source):
            return False
        return bool(self.rights.send.permits(message.to or message.subject))

    def _is_of_same_cluster(self, source: Any) -> bool:
        return isinstance(source, LeafSession) and source.cluster == self.cluster

    def forward(self, message: "Inbound", queues: list[bytes]) -> bool:
        """Send `message`, for the groups as well that this server has no member of."""
        if not self.can_forward(message):
            return False
        return self._send(message, b" ".join(queues))

    def _send(self, message: "Inbound", queues: bytes) -> bool:
        out = self.out
        subject = message.subject
        reply = message.reply
        if message.to and message.to != subject:
            if is_ack_subject(reply):
                reply = reply + b"@" + subject
            subject = message.to
        header_start = message.header_start if self.headers else message.body_start
        header = message.body_start - header_start
        total = message.end - header_start
        if total >= _SHARED_MIN and out.shared > _LADEN_MAX:
            self.engine.flush(self)
        out.put(b"HMSG " if header else b"LMSG ")
        out.put(subject)
        if queues:
            out.put(b" + " + reply + b" " + queues if reply else b" | " + queues)
        elif reply:
            out.put_byte(char.SPACE)
            out.put(reply)
        if header:
            out.put_byte(char.SPACE)
            out.put_int(header)
        out.put_byte(char.SPACE)
        out.put_int(total)
        out.put(b"\r\n")
        if total < _SHARED_MIN:
            out.put_slice(message.data, header_start, message.end)
            out.put(b"\r\n")
        else:
            out.share(self.turn.tail(message.data, header_start, message.end))
            self.turn.shared += total
        self._count_out(total)
        return True

    # -- the end -------------------------------------------------------------------------------

    def gone(self, reason: str) -> None:
        """The link has ended: nobody on the other side listens any more."""
        if not self.closed:
            self.engine.leaves.ended(self)
        ClientSession.gone(self, reason)
