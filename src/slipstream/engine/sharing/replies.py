"""Replies to requests of other accounts: how an answer finds its way back.

A request that comes in by a service import has a reply subject of this account,
`_R_.<account>.<id>`. What is published there goes on to the requester's own reply subject: once, or
as often as the export says, until an answer without headers and body, until the requester listens
no more, or until nothing came for the export's time.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from slipstream.engine.session.account import Account
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Follower, Subscription
from slipstream.wire.subjects import is_literal

_int = int  # the name `int` in a compiled module's annotations is a C type

PREFIX = b"_R_."
_ID_BITS = 48
# Open requests of one import, and the bytes of their reply subjects; the oldest make room.
_OPEN_MAX = 65_536
_BYTES_MAX = 16 * 1024 * 1024


class Open:
    """A request that may be answered: at `reply` of `account`."""

    def __init__(self, account: Account, reply: bytes, origin: "Requests") -> None:
        self.account = account
        self.reply = reply
        self.origin = origin
        self.is_single = origin.is_single
        self.deadline = 0
        self.id = b""
        self._watcher: Callable[[], None] | None = None

    def watch(self) -> None:
        """Notice when the requester has gone; with a reply that is no subject, time alone tells."""
        if not is_literal(self.reply):
            return
        self._watcher = self._look
        self.account.watch_interest(self.reply, self._watcher)

    def unwatch(self) -> None:
        """Watch no more."""
        if self._watcher is not None:
            self.account.unwatch_interest(self.reply, self._watcher)
            self._watcher = None

    def _look(self) -> None:
        """The requester may have gone: who works for it in the other account is to notice."""
        if not self.account.has_interest(self.reply):
            replies = self.origin.replies
            replies.end(self)
            replies.account.generation += 1


class Requests:
    """The open requests of one import, the next to run out first."""

    def __init__(self, replies: "Replies", is_single: bool, response_threshold: _int) -> None:
        self.replies = replies
        self.is_single = is_single
        self.response_threshold = response_threshold  # ns
        # A plain dict would have to pass over all that was taken from its beginning.
        self.open: OrderedDict[bytes, Open] = OrderedDict()
        self.bytes = 0  # of their reply subjects
        self._timer: Any = None

    def __len__(self) -> int:
        return len(self.open)

    def begin(self, account: Account, reply: bytes) -> bytes:
        """Where the answer to a request of `account` is to be sent that expects it at `reply`."""
        self.bytes += len(reply)
        while self.open and (len(self.open) >= _OPEN_MAX or self.bytes > _BYTES_MAX):
            self.replies.end(next(iter(self.open.values())))
        entry = Open(account, reply, self)
        subject = self.replies.begin(entry)
        self.touch(entry)
        return subject

    def touch(self, entry: Open) -> None:
        """The entry has all its time again."""
        engine = self.replies.account.engine
        entry.deadline = engine.clock.now + self.response_threshold
        self.open[entry.id] = entry
        self.open.move_to_end(entry.id)
        if self._timer is None:
            self._timer = engine.timers.after(self.response_threshold, self._expire)

    def _expire(self) -> None:
        engine = self.replies.account.engine
        self._timer = None
        while self.open:
            entry = next(iter(self.open.values()))
            if entry.deadline > engine.clock.now:
                self._timer = engine.timers.at(entry.deadline, self._expire)
                return
            self.replies.end(entry)

    def stop(self) -> None:
        """No request is answered any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for entry in list(self.open.values()):
            self.replies.end(entry)


class Replies(Follower):
    """Takes what is published to the reply subjects in `account`, as `account.replies`."""

    takes_imports = False

    def __init__(self, account: Account) -> None:
        self.account = account
        self._prefix = b"%b%06x." % (PREFIX, account.engine.random.getrandbits(24))
        self._open: dict[bytes, Open] = {}
        account.add_service(self._prefix + b"*", self)

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, entry: Open) -> bytes:
        """Where `entry` is answered from now on."""
        random = self.account.engine.random
        name = b"%012x" % random.getrandbits(_ID_BITS)
        while name in self._open:
            name = b"%012x" % random.getrandbits(_ID_BITS)
        entry.id = name
        self._open[name] = entry
        entry.watch()
        return self._prefix + name

    def end(self, entry: Open) -> None:
        """Nothing more is answered; harmless if that is so already."""
        if self._open.pop(entry.id, None) is None:
            return
        entry.origin.open.pop(entry.id, None)
        entry.origin.bytes -= len(entry.reply)
        entry.unwatch()

    def cancel(self, subject: bytes) -> None:
        """Nobody took the request that was to be answered at `subject`."""
        entry = self._open.get(subject[len(self._prefix) :])
        if entry is not None:
            self.end(entry)

    def find(self, subject: bytes) -> Open | None:
        """The request that is answered at `subject`."""
        if not subject.startswith(self._prefix):
            return None
        return self._open.get(subject[len(self._prefix) :])

    def has_interest(self, subject: bytes) -> bool:
        """Whether an answer at `subject` would still reach somebody."""
        entry = self.find(subject)
        return entry is not None and entry.account.has_interest(entry.reply)

    def listeners(self, subject: bytes) -> list[Subscription]:
        """Who an answer at `subject` goes to in the end."""
        entry = self.find(subject)
        return entry.account.listeners(entry.reply) if entry is not None else []

    def handle(self, message: Inbound) -> _int:
        goes_to = message.to or message.subject
        entry = self.find(goes_to)
        if entry is None:
            return 0
        if entry.is_single or message.end == message.header_start:
            self.end(entry)
        else:
            entry.origin.touch(entry)
        shown = entry.reply if message.subject == goes_to else message.subject
        answer = message.under(shown, message.reply)
        answer.to = entry.reply if message.to else b""
        return entry.account.hand_on(entry.reply, answer)


def replies_of(account: Account) -> Replies:
    """The replies of `account`, which are there from the first request on."""
    if account.replies is None:
        account.replies = Replies(account)
    found: Replies = account.replies
    return found
