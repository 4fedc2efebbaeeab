"""What sessions have to say, on its way to their connections.

Each session gathers its output in a buffer and joins ``turn.sessions`` once. At the end of the
turn `Output` gives each buffer to the connection in one piece. It also bounds what is pending
there, that is, what clients have not taken yet: of one of them (`max_pending`), and of all together
(`max_pending_total`).
"""

from collections.abc import Callable
from operator import itemgetter

from slipstream.engine.loop.turn import WRITE_SLICE, Turn
from slipstream.engine.session.host import Host
from slipstream.engine.session.session import WRITES, ClientSession

# What a client that does not keep up is sent gathers here until it makes a piece worth a write.
PIECE_BYTES = 64 * 1024
_COUNT_MAX = 2**62  # bytes, for who bounds nothing: more does not go into a number of C


class Output:
    """See the module's text. Nothing leaves while `may_answer` is there and says False: the server
    leads a group, and does not know whether what it knows is all that there is."""

    def __init__(self, host: Host, turn: Turn) -> None:
        self.may_answer: Callable[[], bool] | None = None
        self.is_crowded = False  # clients have more than half of what they may have pending
        self._host = host
        self._turn = turn
        self._silent: dict[ClientSession, None] = {}  # who was not sent what there is
        self._written = 0  # bytes since pending ones were counted
        self._count_at = 0

    def is_kept(self) -> bool:
        """Whether something waits for `may_answer`."""
        return bool(self._silent)

    def try_again(self) -> None:
        """Have who was not sent what there is say it with this turn."""
        if self._silent:
            silent, self._silent = self._silent, {}
            for session in silent:
                session.drained()

    def write_all(self) -> None:
        """Write what the sessions of this turn have to say. Large messages that many are sent go
        on in later rounds."""
        turn = self._turn
        while turn.sessions:
            sessions = turn.sessions
            turn.sessions = []
            for session in sessions:
                if session.out.shared and turn.written >= WRITE_SLICE:
                    turn.laden.append(session)
                    continue
                session.flushing = False
                if session.out.length() < PIECE_BYTES and session.transport.pending():
                    self._look_at_backlog(session)
                else:
                    self.flush(session)

    def write_laden(self) -> None:
        """A slice of the large messages that many are sent; who published them waits till all are
        written."""
        turn = self._turn
        while turn.laden and turn.written < WRITE_SLICE:
            session = turn.laden.popleft()
            session.flushing = False
            self.flush(session)
        if not turn.laden:
            for _ in range(len(turn.waiting)):
                session = turn.waiting.popleft()
                session.stopped_by &= ~WRITES
                session.park()

    def flush(self, session: ClientSession) -> None:
        """Write what a session has to say; cut it off if it has fallen too far behind."""
        out = session.out
        size = out.length()
        if session.closed or not size:
            return
        if self.may_answer is not None and not self.may_answer():
            self._silent[session] = None
            return
        if out.shared:
            self._turn.written += size
            session.transport.write_parts(out.take_parts())
        else:
            session.transport.write(out.take())
        self._written += size
        if self._written >= self._count_at:
            self.count_pending()
        self._look_at_backlog(session)

    def _look_at_backlog(self, session: ClientSession) -> None:
        pending = session.transport.pending()
        if not pending or session.closed:
            return
        options = self._host.options
        pending += session.out.length()
        if pending > options.max_pending:
            self._host.cut_off(session, "Slow Consumer (Pending Bytes)")
        elif options.no_fast_producer_stall:
            if self.is_crowded or pending > options.max_pending * 3 >> 2:
                session.behind = True
        else:
            session.slow = self.is_crowded or pending > options.max_pending >> 3

    def count_pending(self) -> None:
        """Count what all clients have not taken yet. Too much of it costs those who have most."""
        options = self._host.options
        bound = options.max_pending_total or 8 * options.max_pending
        found = [(_pending(session), session) for session in self._host.all_sessions()]
        total = sum([pending for pending, _ in found])
        if total > bound:
            found.sort(key=itemgetter(0))
        while total > bound:
            pending, session = found.pop()
            total -= pending
            self._host.cut_off(session, "Slow Consumer (Pending Bytes)")
        self.is_crowded = total > bound // 2
        # What is pending grows by what is written, at the most.
        self._written = 0
        self._count_at = min(max(bound // 2 - total, bound // 16), _COUNT_MAX)


def _pending(session: ClientSession) -> int:
    pending: int = session.transport.pending()
    return pending + session.out.length()
