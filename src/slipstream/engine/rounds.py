"""How turns end, and what goes on in later rounds (`engine.loop.turn` says what these are).

At the end of a turn consumers deliver, streams commit and sessions are written to. What would hold
up others waits: API requests beyond their share of a round, sessions that have used their quantum,
closed subscriptions, consumers and requests that need a message from the disk.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from slipstream.engine.commit.commit import Commit
from slipstream.engine.commit.not_yet import NotYetError
from slipstream.engine.jetstream.advisories import publish_limit_reached
from slipstream.engine.loop.turn import API_SLICE, ROUND, Turn
from slipstream.engine.session.account import Account
from slipstream.engine.session.host import Host
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.output import Output
from slipstream.engine.session.routing import Subscription
from slipstream.engine.session.session import API, PARKED, READS, ClientSession
from slipstream.errors import StorageError
from slipstream.log.cold import ColdError

ROUNDS_MAX = 4  # of pumping and committing before a turn's output is flushed
READS_MAX = 1024  # requests that may wait for the disk; who asks then is not read from
DROP_STEPS = 50  # to take a subscription out of its account


class Answering(Protocol):
    """An API, as far as its requests wait."""

    def answer(self, message: Inbound, began: int) -> object:
        """Act on a request that came at `began`, and answer it."""


class Rounds:
    """See the module's text. The driver calls `finish_turn` at the end of each turn; while that
    returns True, `go_on` and `finish_turn` follow once the sockets were looked at again."""

    def __init__(self, host: Host, turn: Turn, commit: Commit, output: Output) -> None:
        self._host = host
        self._turn = turn
        self._commit = commit
        self._output = output
        # To the API, that wait: who answers them, and when they came.
        self.requests: deque[tuple[Answering, Inbound, int]] = deque()
        self._dropped: deque[tuple[Account, deque[Subscription]]] = deque()
        self._fetching: set[Any] = set()  # consumers whose next message is being read
        self._reads = 0  # of the disk, or other jobs, for which requests wait ...
        self._held_back: dict[ClientSession, None] = {}  # ... who may not ask more

    def go_on(self) -> None:
        """Begin a round: what did not fit into the last one goes on, a bounded amount."""
        turn = self._turn
        turn.round += 1
        turn.spent = turn.api_spent = turn.written = 0
        self._output.write_laden()
        self._answer_requests()
        self._drop_subscriptions()
        for _ in range(len(turn.parked)):
            if turn.spent >= ROUND // 2:
                return
            session = turn.parked.popleft()
            try:
                session.release(PARKED)
            except Exception:  # a fault of the server: it costs this client, not the others
                session.close("Internal Error")
                raise

    def finish_turn(self, gathers: bool = False) -> bool:
        """Pump consumers, commit streams, flush sessions. True if there is more to do at once.

        If it `gathers`, what was stored is left for the next turn to commit, with its own; but what
        was acknowledged at once has to be visible now.
        """
        turn = self._turn
        self._output.try_again()
        rounds = 0
        gathers = gathers and not turn.has_relaxed
        while (turn.ready or (turn.streams and not gathers)) and rounds < ROUNDS_MAX:
            rounds += 1
            if turn.ready:
                self._pump()
            if not gathers:
                self._commit_streams()
        self._output.write_all()
        turn.forget_tails()
        return bool(
            turn.ready
            or turn.streams
            or turn.parked
            or turn.laden
            or turn.waiting
            or self.requests
            or self._dropped
            or self._output.is_kept()
        )

    def _pump(self) -> None:
        """Consumers deliver; whatever befalls one of them, the others have their turn."""
        turn = self._turn
        waiting = iter(turn.ready)
        turn.ready = []
        try:
            for pumped in waiting:
                try:
                    pumped.pump()
                except ColdError as cold:
                    self._fetch(cold, pumped)
                if turn.spent >= ROUND:
                    break
        except (OSError, StorageError) as error:
            pumped.put_off(error)
        finally:
            turn.ready[:0] = waiting

    def _commit_streams(self) -> None:
        """Streams write what they hold; whatever befalls one of them, the others do so, too."""
        turn = self._turn
        streams, turn.streams, turn.has_relaxed = turn.streams, [], False
        if len(streams) == 1:
            stream = streams[0]
            stream.dirty = False
            self._commit.commit(stream)
            return
        waiting = iter(streams)
        try:
            self._commit.commit_all(waiting)
        finally:
            turn.streams[:0] = waiting

    # -- what waits for the disk -----------------------------------------------------------------

    def _fetch(self, cold: ColdError, consumer: Any) -> None:
        """Have the next message of a consumer read, one at a time; it delivers then."""
        if consumer in self._fetching:
            return
        self._fetching.add(consumer)

        def done() -> None:
            self._fetching.discard(consumer)
            consumer.wake()

        self._commit.fetch(cold, done)

    def fetch(
        self, cold: ColdError, session: ClientSession | None, done: Callable[[], None]
    ) -> None:
        """Have read from the disk what a request of `session` (None: nobody's) needs; `done` asks
        again. While too many wait, those who ask are not read from."""
        self._commit.fetch(cold, self._counted(session, done))

    def wait(
        self, early: NotYetError, session: ClientSession | None, done: Callable[[], None]
    ) -> None:
        """The same for a request that waits for another job."""
        early.wait(self._counted(session, done))

    def _counted(
        self, session: ClientSession | None, done: Callable[[], None]
    ) -> Callable[[], None]:
        """`done`, for which a request of `session` waits until then."""
        self._reads += 1
        if self._reads >= READS_MAX and session is not None and not session.closed:
            session.hold(READS)
            self._held_back[session] = None

        def fetched() -> None:
            self._reads -= 1
            if self._held_back and self._reads <= READS_MAX // 2:
                held_back, self._held_back = self._held_back, {}
                for one in held_back:
                    one.stopped_by &= ~READS
                    one.park()
            done()

        return fetched

    # -- what waits for a later round ------------------------------------------------------------

    def drop_later(self, account: Account, subscriptions: list[Subscription]) -> None:
        """Take closed subscriptions out of their account, bit by bit."""
        self._dropped.append((account, deque(subscriptions)))

    def _drop_subscriptions(self) -> None:
        turn = self._turn
        while self._dropped and turn.spent < ROUND // 2:
            account, subscriptions = self._dropped[0]
            account.unsubscribe(subscriptions.popleft())
            turn.spent += DROP_STEPS
            if not subscriptions:
                self._dropped.popleft()

    def must_wait(self) -> bool:
        """Whether API requests have had their share of this round."""
        return bool(self.requests) or self._turn.api_spent >= API_SLICE

    def queue_request(self, api: Answering, message: Inbound, began: int) -> None:
        """Have ``api.answer(message, began)`` called in a later round; the sender is not read from
        until then. Too many are dropped as nats-server drops them: all, without an answer."""
        limit = self._host.options.ceilings.request_queue_limit
        if 0 < limit <= len(self.requests):
            publish_limit_reached(self._host, len(self.requests))
            self._drop(list(self.requests))
        session = message.session
        session.hold(API)
        copy = Inbound(message.subject, message.reply, message.header(), message.body(), session)
        self.requests.append((api, copy, began))

    def _answer_requests(self) -> None:
        turn = self._turn
        while self.requests and turn.api_spent < API_SLICE:
            api, message, began = self.requests.popleft()
            try:
                api.answer(message, began)
            finally:
                _let_go_on(message.session)

    def drop_requests_to(self, api: object) -> None:
        """There is no such API any more: what waits for it has no answer."""
        self._drop([item for item in self.requests if item[0] is api])

    def _drop(self, dropped: list[tuple[Answering, Inbound, int]]) -> None:
        for item in dropped:
            self.requests.remove(item)
            _let_go_on(item[1].session)


def _let_go_on(session: ClientSession) -> None:
    session.stopped_by &= ~API
    session.park()
