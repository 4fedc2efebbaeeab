"""Checkpoints on their way between two servers of a group, over the link that they have.

    behind                    source
    AskCheckpoint       ->
                        <-    CheckpointBegin     which entries are in it
    begin_install             (the disk knows of it before anything is replaced)
                        <-    CheckpointPiece     `WINDOW` bytes of them at most
    PieceStored         ->                        as the owner takes them
                        <-    CheckpointEnd
    installed
    CheckpointOver      ->

The source is the leader, or a follower that it names. The leader keeps the entries that follow the
checkpoint meanwhile, as far as it can: heartbeats tell it of them (`Heard.needs`).

Pieces leave after all other messages that wait for that server (`Link`), so heartbeats and entries
are not held up. Where the link breaks, or nothing comes for `PATIENCE`, it is asked for again, and
the owners know what need not be sent once more.

A source that has entries to see to takes its time (`_Pace`). Entries that come meanwhile may then
be more than it keeps for the other server, which needs another checkpoint; so each one that follows
on another is sent at twice the rate. It has little in it but what has changed since the last one.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable

from slipstream.errors import DiskFullError, Error
from slipstream.group import Mark, Member, Message
from slipstream.group.messages import (
    AskCheckpoint,
    CheckpointBegin,
    CheckpointEnd,
    CheckpointMessage,
    CheckpointOver,
    CheckpointPiece,
    PieceStored,
)
from slipstream.model.durations import SECOND
from slipstream.server.group.checkpoints import PIECE_MAX, Checkpoints, TransferBrokenError
from slipstream.server.logger import Logger

WINDOW = 8 * 1024 * 1024  # bytes of pieces that are sent, and not taken yet
PATIENCE = 30 * SECOND  # ns in which something has to come
RETRY = SECOND  # ns from an attempt that has failed to the next one
SOON = 5 * SECOND  # ns after an installation in which another one follows on it
DOUBLED_MAX = 8  # times that the rate is doubled
RATE = 64 * 1024 * 1024  # bytes a second that a source sends while it has entries to see to
AHEAD = SECOND // 50  # ns that pieces may be ahead of their rate: a shorter sleep is none
AT_REST = SECOND // 10  # ns without an entry, after which no rate holds


class _Receiving:
    """A checkpoint that comes to this server."""

    def __init__(self, source: str, now: int) -> None:
        self.source = source
        self.number = random.getrandbits(62)  # of the transfer
        self.heard_at = now
        self.mark: Mark | None = None  # the last entry in it, once it has begun
        self.task: asyncio.Task[None] | None = None  # that installs it
        self.is_taken = False  # whether the owner has had all of it
        self._pieces: deque[bytes] = deque()
        self._size = 0  # bytes of these
        self._count = 0  # pieces that have come
        self._is_complete = False
        self._why = ""  # it is broken
        self._news: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it is for the source to say something."""
        return not self._pieces and not self._is_complete

    def add(self, piece: CheckpointPiece) -> None:
        """The next piece has come."""
        self._count += 1
        self._pieces.append(piece.data)
        self._size += len(piece.data)
        if piece.number != self._count or self._size > WINDOW + PIECE_MAX:
            self.end("its pieces do not come in order, or too many at once")
        self._wake()

    def complete(self, count: int) -> None:
        """There are no more pieces."""
        if count != self._count:
            self.end(f"{self._count} of {count} pieces have come")
        self._is_complete = True
        self._wake()

    def end(self, why: str) -> None:
        """It is broken."""
        self._why = self._why or why
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def pieces(self, taken: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
        """The pieces as they come; `taken` is told of each that was taken."""
        number = 0
        while True:
            if self._why:
                raise TransferBrokenError(
                    f"the checkpoint of {self.source} has broken: {self._why}"
                )
            if self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                number += 1
                yield piece
                taken(number)
            elif self._is_complete:
                self.is_taken = True
                return
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news


class _Sending:
    """A checkpoint that leaves this server."""

    def __init__(self, number: int) -> None:
        self.number = number  # of the transfer
        self.task: asyncio.Task[None] | None = None
        self.over = asyncio.Event()  # the other one has it
        self.is_sent = False  # whether all of it is on its way
        self._sizes: deque[tuple[int, int]] = deque()  # of pieces on their way: number, bytes
        self._size = 0
        self._room = asyncio.Event()

    async def wait_for_room(self, size: int) -> None:
        """Until a piece of that size may leave."""
        while self._sizes and self._size + size > WINDOW:
            self._room.clear()
            await self._room.wait()

    def has_sent(self, number: int, size: int) -> None:
        """A piece is on its way."""
        self._sizes.append((number, size))
        self._size += size

    def stored(self, number: int) -> None:
        """Pieces up to this one are taken."""
        while self._sizes and self._sizes[0][0] <= number:
            self._size -= self._sizes.popleft()[1]
        self._room.set()


class _Pace:
    """How fast pieces leave. `end` is the index of the last entry in the log: while it moves, the
    rate holds."""

    def __init__(self, rate: int, end: Callable[[], int], now: Callable[[], int]) -> None:
        self._rate = rate  # bytes a second
        self._end = end
        self._now = now
        self._last_end = end()
        self._moved_at = now() - AT_REST  # when that had changed
        self._due = now()  # when the next piece is to leave

    def after(self, size: int) -> float:
        """Seconds to wait behind a piece of that size."""
        now, end = self._now(), self._end()
        if end != self._last_end:
            self._last_end, self._moved_at = end, now
        if now >= self._moved_at + AT_REST:
            self._due = now
            return 0.0
        self._due = max(self._due, now - AHEAD) + size * SECOND // self._rate
        return (self._due - now) / SECOND if self._due > now + AHEAD else 0.0


class Transfers:
    """See the module's text. `turn` is to be called when the member has something to say."""

    def __init__(
        self,
        member: Member,
        checkpoints: Checkpoints | None,
        send: Callable[[str, Message], None],
        is_linked: Callable[[str], bool],
        turn: Callable[[], None],
        now: Callable[[], int],
        log: Logger,
    ) -> None:
        self._member = member
        self._checkpoints = checkpoints
        self._send = send
        self._is_linked = is_linked
        self._turn = turn
        self._now = now
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._receiving: _Receiving | None = None
        self._sending: dict[str, _Sending] = {}  # by receiver
        self._tasks: set[asyncio.Task[None]] = set()
        self._ask_at = 0
        self._failed_source = ""  # of the last attempt, if it came to nothing
        self._in_row = 0  # checkpoints that were installed here, each one soon after the other ...
        self._installed_at = 0  # ... and when the last one was

    async def stop(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def unlinked(self, name: str) -> None:
        """The link with a server has ended."""
        receiving = self._receiving
        if receiving is not None and receiving.source == name:
            self._break("the link has ended")
        sending = self._sending.get(name)
        if sending is not None and sending.task is not None:
            sending.task.cancel()

    def received(self, sender: str, message: CheckpointMessage) -> None:
        """Something about one of them."""
        match message:
            case AskCheckpoint():
                self._begin_sending(sender, message)
            case PieceStored(transfer, number):
                sending = self._sending.get(sender)
                if sending is not None and sending.number == transfer:
                    sending.stored(number)
            case CheckpointOver(transfer):
                sending = self._sending.get(sender)
                if sending is not None and sending.number == transfer:
                    sending.over.set()
                    if not sending.is_sent and sending.task is not None:
                        sending.task.cancel()  # it is not wanted
                self._hear(sender, transfer, message)
            case CheckpointBegin(transfer) | CheckpointPiece(transfer) | CheckpointEnd(transfer):
                self._hear(sender, transfer, message)

    # -- to another server -----------------------------------------------------------------------

    def _begin_sending(self, receiver: str, asked: AskCheckpoint) -> None:
        old = self._sending.get(receiver)
        if old is not None and old.task is not None:
            old.task.cancel()
        sending = self._sending[receiver] = _Sending(asked.transfer)
        work = self._send_all(receiver, sending, asked)
        sending.task = self._start(self._loop.create_task(work))

    async def _send_all(self, receiver: str, sending: _Sending, asked: AskCheckpoint) -> None:
        try:
            await self._send_checkpoint(receiver, sending, asked)
        except Exception as error:
            self._log.error(f"No checkpoint for {receiver} of the group: {error or repr(error)}")
            self._send(receiver, CheckpointOver(sending.number))
        finally:
            if self._sending.get(receiver) is sending:
                del self._sending[receiver]

    async def _send_checkpoint(
        self, receiver: str, sending: _Sending, asked: AskCheckpoint
    ) -> None:
        if self._checkpoints is None:
            raise Error("this server has none to send")
        checkpoint = await self._checkpoints.open(asked.held)
        try:
            mark = self._member.checkpoint_mark(checkpoint.index)
            if mark is None:
                raise Error(f"entry {checkpoint.index} is not committed here, or is gone")
            rate = RATE << min(max(asked.after, 0), DOUBLED_MAX)
            pace = _Pace(rate, lambda: self._member.log.end.index, self._now)
            self._log.info(f"{receiver} of the group is sent a checkpoint up to entry {mark.index}")
            self._send(receiver, CheckpointBegin(sending.number, mark))
            number = 0
            async for piece in checkpoint.pieces():
                if len(piece) > PIECE_MAX:
                    raise Error(f"a piece of {len(piece)} bytes: at most {PIECE_MAX} are sent")
                await sending.wait_for_room(len(piece))
                number += 1
                sending.has_sent(number, len(piece))
                self._send(receiver, CheckpointPiece(sending.number, number, piece))
                if (wait := pace.after(len(piece))) > 0:
                    await asyncio.sleep(wait)
            self._send(receiver, CheckpointEnd(sending.number, number))
        finally:
            await checkpoint.close()
        sending.is_sent = True
        await sending.over.wait()

    # -- to this server --------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Ask for a checkpoint if one is needed; give up what does not come."""
        receiving = self._receiving
        if receiving is not None:
            if receiving.is_waiting and now >= receiving.heard_at + PATIENCE:
                self._break("nothing has come for long")
            return
        if now < self._ask_at:
            return
        # Without a link the question would be lost, and waited for.
        sources = [name for name in self._member.checkpoint_sources() if self._is_linked(name)]
        if not sources:
            return
        source = next((name for name in sources if name != self._failed_source), sources[0])
        self._ask_at = now + RETRY
        if self._checkpoints is None:
            self._ask_at = now + PATIENCE
            self._log.error(f"{source} has trimmed entries that are needed here, in a checkpoint")
            return
        if now >= self._installed_at + SOON:
            self._in_row = 0
        self._receiving = _Receiving(source, now)
        held = self._checkpoints.held()
        self._send(source, AskCheckpoint(self._receiving.number, held, self._in_row))

    def look(self) -> None:
        """Begin to install, once the disk knows that."""
        receiving = self._receiving
        is_begun = receiving is not None and receiving.mark is not None and receiving.task is None
        if is_begun and self._member.may_install:
            assert receiving is not None
            receiving.task = self._start(self._loop.create_task(self._install(receiving)))

    def _hear(self, sender: str, number: int, message: CheckpointMessage) -> None:
        receiving = self._receiving
        if receiving is None or (receiving.source, receiving.number) != (sender, number):
            if not isinstance(message, CheckpointOver):
                self._send(sender, CheckpointOver(number))
            return
        now = receiving.heard_at = self._now()
        match message:
            case CheckpointBegin(_, mark):
                if receiving.mark is None and self._member.begin_install(now, mark):
                    receiving.mark = mark
                else:
                    self._send(sender, CheckpointOver(number))
                    self._break("it is not needed here")
            case CheckpointPiece():
                receiving.add(message)
            case CheckpointEnd(_, count):
                receiving.complete(count)
            case CheckpointOver():
                self._break("its source has given it up")

    def _break(self, why: str) -> None:
        receiving = self._receiving
        assert receiving is not None
        receiving.end(why)
        self._failed_source = receiving.source
        if receiving.task is None:  # else it ends when the owner has heard
            self._receiving = None
            self._ask_at = self._now() + RETRY

    async def _install(self, receiving: _Receiving) -> None:
        assert self._checkpoints is not None
        mark, source, number = receiving.mark, receiving.source, receiving.number
        assert mark is not None
        self._log.info(f"A checkpoint of {source} up to entry {mark.index} is installed")
        pieces = receiving.pieces(lambda taken: self._send(source, PieceStored(number, taken)))
        pause = RETRY
        self._failed_source = source  # unless it comes to its end
        try:
            await self._checkpoints.install(mark.index, pieces)
            if not receiving.is_taken:
                raise Error("its owner has not taken all pieces")
            if self._member.failed:
                raise Error(self._member.failed)
            self._member.installed(self._now(), mark)
        except TransferBrokenError as error:
            self._log.warn(f"A checkpoint is not installed: {error}; it is asked for again")
        except DiskFullError as error:  # all of it would be sent in vain again and again
            pause = PATIENCE
            self._failed_source = ""
            self._log.error(
                f"A checkpoint is not installed: {error}; it is asked for again after a while"
            )
        except Exception as error:
            self._log.fault("installing a checkpoint of the group", error)
        else:
            self._failed_source = ""
            self._in_row, self._installed_at = self._in_row + 1, self._now()
            self._log.info(f"The checkpoint up to entry {mark.index} is installed")
        finally:
            self._receiving = None
            self._ask_at = self._now() + pause
            self._send(source, CheckpointOver(number))
            await pieces.aclose()
        self._turn()
