"""A server's part in its group, on a thread of its own: the group's host, and the files that its
entries are applied to.

The thread has an event loop. What an engine does for long, or what it waits for, holds up neither
heartbeats nor entries. Whoever owns the replica is told, on that thread, when something about the
leadership has changed.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from slipstream.errors import DiskFullError, Error, StorageError
from slipstream.group import NotLeaderError, Wish
from slipstream.log.durability import is_final
from slipstream.server.event_loop import new_loop
from slipstream.server.group import BusyError, GroupHost, OutcomeUnknownError
from slipstream.server.group.checkpoints import TrimmedError
from slipstream.server.logger import Logger
from slipstream.server.replica.group_disk import LostLeadError
from slipstream.server.replica.operations import Kind, Operation, encode_operations
from slipstream.server.replica.store_copy import Snapshot, decode_held, encode_held
from slipstream.server.replica.store_directory import StoreDirectory

KEEP_SECONDS = 2.0  # after which what was applied is made durable, and the log's beginning may go
KEEP_BYTES = 32 * 1024 * 1024  # ... or after so many bytes
# Entries with fewer bytes are applied on the loop: two hand-overs between threads cost more.
HERE_BYTES_MAX = 256 * 1024
START_SECONDS_MAX = 60.0
AGAIN_SECONDS = 0.5  # after there were no descriptors, or no space
FULL_SECONDS = 5.0  # for which files count as full at least after something had no space

_HAS_ENDED = "the group's thread of this server has ended, or hangs"

Result = TypeVar("Result")


class Owner(Protocol):
    """Who is told, on the replica's thread."""

    def changed(self) -> None:
        """Who leads, or whether this server does, or where clients find the leader, or whether the
        group's log is full."""

    def failed_with(self, why: str) -> None:
        """This server takes no part in the group any more."""


class Replica:
    """See the module's text. `make_host` is called on the thread; `make_directory` where the
    group's log is known, whose last index it is given."""

    def __init__(
        self,
        make_host: Callable[[], GroupHost],
        make_directory: Callable[[int], StoreDirectory],
        owner: Owner,
        log: Logger,
    ) -> None:
        self._make_host = make_host
        self._make_directory = make_directory
        self._owner = owner
        self._log = log
        self._thread = threading.Thread(target=self._run, name="slipstream-replica", daemon=True)
        self._applying = ThreadPoolExecutor(1, thread_name_prefix="slipstream-apply")
        self._keeping = ThreadPoolExecutor(1, thread_name_prefix="slipstream-keep")
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._host: GroupHost | None = None
        self.directory: StoreDirectory | None = None
        self._gate = threading.Lock()  # for the next two
        self._unanswered: set[Future[None]] = set()  # of entries that were submitted
        self._has_ended = False
        self._waiting: deque[tuple[int, Future[None]]] = deque()  # committed, and not applied yet
        self._unkept = 0  # bytes that were applied since the last `keep`
        self._has_unkept: asyncio.Event | None = None
        self._reader: asyncio.Task[None] | None = None  # applies what is committed
        self._led = 0  # the epoch that the owner knows this server to lead in
        self._leader = ("", "")  # where clients find it, and its token
        self._was_full = False  # as the owner knows it
        self._gap_in = 0  # the epoch in which an entry was not appended: none may follow it
        self._failed = ""
        self._full_at = 0.0  # when something had no space, last
        self._wish: Wish | None = None

    # -- for any thread --------------------------------------------------------------------------

    def start(self) -> None:
        """Start; returns once the host listens and dials. Raises `Error`."""
        self._thread.start()
        self._started.result(START_SECONDS_MAX)

    def stop(self) -> None:
        """End; what waits for an entry is told that nobody knows."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def submit(self, body: bytes, epoch: int = 0) -> "Future[None]":
        """Append an entry; done once it is applied here, or with a `LostLeadError`. With an
        `epoch` it is appended in that one or not at all; not behind one of it that was not, either,
        until the epoch is announced once more."""
        return self._submit(body, epoch)

    def _submit(self, body: bytes, epoch: int, is_anew: bool = False) -> "Future[None]":
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # what is on its way cannot be taken back
        assert self._loop is not None
        with self._gate:
            if self._has_ended:
                future.set_exception(LostLeadError("this server stops"))
                return future
            self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        # A RuntimeError, of a loop that has closed, is of no account: `_end_all` follows.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._append, body, future, epoch, is_anew)
        return future

    @property
    def host(self) -> GroupHost:
        """The host, for what may be asked on any thread: names, indices, leases."""
        assert self._host is not None
        return self._host

    def may_read(self) -> bool:
        """Whether this server leads, and all that is committed anywhere is committed here."""
        return self._host is not None and self._host.may_read()

    @property
    def leads(self) -> int:
        """The epoch in which this server leads and has applied all that came before; else 0."""
        return self._led

    @property
    def leader_url(self) -> str:
        """Where clients find the leader, another server; "" if that is not known."""
        return self.leader_clients[0]

    @property
    def leader_clients(self) -> tuple[str, str]:
        """The same, and with what this server proves to that leader that it brings clients
        (`relay_proof`); "" if it asks for nothing. They are read as one: without the token, clients
        would be taken for this server's own."""
        host, directory = self._host, self.directory
        leader = host.leader_name if host is not None else ""
        if host is None or directory is None or leader == host.name:
            return "", ""
        url = directory.clients.get(leader, "")  # before the token, which is known with it
        return url, directory.tokens.get(leader, "")

    def announce(self, url: str, epoch: int, token: str = "") -> "Future[None]":
        """Have all servers know where clients find this one, which leads in `epoch`, and with what
        they prove that they bring clients. Once that is done, all that was submitted before it is
        applied, or never will be."""
        operation = Operation(Kind.LEADS, self.host.name, url.encode(), other=token)
        future = self._submit(encode_operations([operation]), epoch, is_anew=True)
        future.add_done_callback(self._announced)
        return future

    def _announced(self, future: "Future[None]") -> None:
        """Clients wait at the other servers, which have to know that it is committed."""
        if future.exception() is None and self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self.host.say_committed)

    async def prepare_hand_over(self, successor: str = "") -> str:
        """Do ahead what can be done while this server serves; which one is to lead. Raises `Error`
        where none could soon."""
        return await self._ask_here(lambda host: host.prepare_hand_over(successor))

    async def hand_over(self, successor: str = "", is_slow: bool = False) -> None:
        """Have another server lead, soon; `is_slow`: because the disk here is. Raises `Error`."""
        await self._ask_here(lambda host: host.hand_over(successor, is_slow))

    def take_wish(self) -> Wish | None:
        """Who had better lead, as the disks are, if that was not asked since it is known."""
        wish, self._wish = self._wish, None
        return wish

    @property
    def is_full(self) -> bool:
        """Whether the disk under the group's log has no space, or little, here or on so many other
        servers that none of it can be committed."""
        return self._host is not None and self._host.is_full

    def give_up_waiting(self) -> None:
        """Nobody needs to know any more what becomes of the entries that were submitted: who waits
        for them is told so, also where they wait for space."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has closed, and told them
            self._loop.call_soon_threadsafe(self._give_up_waiting)

    def let_wait_for_space(self, may_wait: bool) -> None:
        """Whether entries have as long as it takes until there is space; else they have the usual
        time, since whoever waits opens or closes the store, and can do nothing else meanwhile. An
        announcement lets them."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(setattr, self.host, "may_wait_for_space", may_wait)

    def had_no_space(self) -> None:
        """Something could not be stored."""
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._note_full)

    def renew(self) -> None:
        """Have the files of another server take the place of those here, which are damaged. Raises
        `Error` where there can be none, such as on the leader."""
        self.distrust()
        self._ask(lambda host: host.lose_applied())

    def distrust(self) -> None:
        """The files here are damaged: no other server is sent them. Blocks."""
        if self.directory is not None:
            try:
                self.directory.distrust()
            except (OSError, DiskFullError) as error:  # a crash might take them for good then
                self._log.error(f"That the files are damaged cannot be noted: {error}")

    def remove(self, server_name: str) -> None:
        """Have a server leave the group, soon. Raises `Error`."""
        self._ask(lambda host: host.remove(server_name))

    def say_of_itself(self, about: bytes) -> None:
        """Have the leader know this of this server, for those who ask. It may be lost."""
        assert self._loop is not None
        with suppress(RuntimeError):  # of a loop that has closed
            self._loop.call_soon_threadsafe(self.host.say_of_itself, about)

    def _ask(self, act: Callable[[GroupHost], None]) -> None:
        """Have the host do something, on its thread. Raises `Error`."""
        try:
            self._asked(act).result(START_SECONDS_MAX)
        except TimeoutError as error:
            raise Error(_HAS_ENDED) from error

    async def _ask_here(self, act: Callable[[GroupHost], Result]) -> Result:
        """The same for who runs on an event loop."""
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                return await asyncio.wrap_future(self._asked(act))
        except TimeoutError as error:
            raise Error(_HAS_ENDED) from error

    def _asked(self, act: Callable[[GroupHost], Result]) -> "Future[Result]":
        """What the host makes of it, later."""
        host = self.host
        done: Future[Result] = Future()
        done.set_running_or_notify_cancel()

        def answer() -> None:
            try:
                done.set_result(act(host))
            except (Error, ValueError) as error:
                done.set_exception(Error(str(error)))
            except Exception as error:
                done.set_exception(error)

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(answer)
        except RuntimeError:  # it has closed
            done.set_exception(Error(_HAS_ENDED))
        return done

    # -- on the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # whatever it is, it is said, and nobody waits for ever
            if not self._started.done():
                self._started.set_exception(error)
            else:
                self._log.fault("running the group", error)
                self._fail(f"the program has made a mistake: {error!r}; start the server again")
        finally:
            self._end_all()

    def _end_all(self) -> None:
        """Nobody answers any more: who waits is told, whatever has become of the entry."""
        with self._gate:
            self._has_ended = True
            left = list(self._unanswered)
        self._waiting.clear()
        for future in left:
            if not future.done():
                future.set_exception(LostLeadError(self._failed or "this server stops"))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._has_unkept = asyncio.Event()
        host = self._host = self._make_host()
        host.on_change = self._look
        host.on_wish = self._wished
        host.checkpoints = self
        await host.start()
        self._read(host)
        keeping = asyncio.create_task(self._guard(self._keep(host)), name="group files")
        self._started.set_result(None)
        try:
            await self._stop.wait()
        finally:
            keeping.cancel()
            await self._stop_reading()
            await asyncio.gather(keeping, return_exceptions=True)
            await host.stop()
            self._end_waits()
            for threads in (self._applying, self._keeping):
                threads.shutdown(wait=True, cancel_futures=True)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work without which this server cannot be in the group."""
        try:
            await work
        except (OSError, Error) as error:
            self._fail(f"the files of the store cannot be written: {error}")
        except Exception as error:
            self._log.fault("applying the entries of the group", error)
            self._fail(f"the program has made a mistake: {error!r}; start the server again")

    def _append(self, body: bytes, future: "Future[None]", epoch: int, is_anew: bool) -> None:
        if is_anew:
            self._gap_in = 0
            self.host.may_wait_for_space = True
        try:
            if epoch and epoch == self._gap_in:  # it is of who does not know of that yet
                raise NotLeaderError("an entry before this one was not appended")
            self.host.submit(body, partial(self._appended, future, epoch), epoch=epoch)
        except BaseException as error:  # whatever it is, a thread of the disk waits for the answer
            self._not_appended(future, epoch, error)
            if not isinstance(error, Exception):
                raise

    def _appended(
        self, future: "Future[None]", epoch: int, index: int, error: Error | None
    ) -> None:
        """An entry is committed, or is not known to be."""
        directory = self.directory
        if error is not None:
            self._not_appended(future, epoch, error)
        elif directory is None or self._failed:  # nothing is applied any more
            future.set_exception(LostLeadError(self._failed or "this server stops"))
        elif directory.applied >= index:
            future.set_result(None)
        else:
            self._waiting.append((index, future))

    def _not_appended(self, future: "Future[None]", epoch: int, error: BaseException) -> None:
        if not isinstance(error, OutcomeUnknownError):
            self._gap_in = max(self._gap_in, epoch)  # an engine of an earlier one may come late
        future.set_exception(LostLeadError(str(error) or repr(error)))
        if not isinstance(error, (NotLeaderError, BusyError, OutcomeUnknownError)):
            self._log.fault("appending an entry of the group", error)
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon(self._look)

    def _give_up_waiting(self) -> None:
        why = "the engine that waited for it has gone"
        self.host.give_up_waiting(why)
        self._end_waits(why)

    # -- space -----------------------------------------------------------------------------------

    def _note_full(self) -> None:
        """The files are on a full disk, and count as such for a while."""
        loop = asyncio.get_running_loop()
        if not self.host.are_files_full:
            self.host.are_files_full = True
            loop.call_later(FULL_SECONDS, self._look_for_space)
        self._full_at = loop.time()

    def _look_for_space(self) -> None:
        loop, directory = asyncio.get_running_loop(), self.directory
        left = self._full_at + FULL_SECONDS - loop.time()
        if left > 0 or directory is None:
            loop.call_later(max(left, AGAIN_SECONDS), self._look_for_space)
            return
        with suppress(RuntimeError):  # the threads have ended
            looking = loop.run_in_executor(self._keeping, directory.has_space)
            looking.add_done_callback(self._looked_for_space)

    def _looked_for_space(self, looking: "asyncio.Future[bool]") -> None:
        """A server that does not lead may not have tried to have more room since: what counts is
        whether it could."""
        if looking.cancelled():
            return
        if looking.exception() is not None or not looking.result():
            asyncio.get_running_loop().call_later(FULL_SECONDS, self._look_for_space)
        else:
            self.host.are_files_full = False

    def _wished(self, wish: Wish) -> None:
        self._wish = wish
        self._owner.changed()

    # -- entries ---------------------------------------------------------------------------------

    def _read(self, host: GroupHost) -> None:
        reading = self._guard(self._apply(host))
        self._reader = asyncio.create_task(reading, name="group entries")

    async def _stop_reading(self) -> None:
        """Apply nothing more; what is being applied is finished first."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._applying, lambda: None)

    async def _apply(self, host: GroupHost) -> None:
        """Apply what is committed, as it comes."""
        loop = asyncio.get_running_loop()
        if self.directory is None:
            self.directory = await loop.run_in_executor(
                self._applying, self._make_directory, host.log_end
            )
        if self.directory.is_unknown:
            self._log.error(
                f"{self.directory.path} does not say any more up to which entry its files are "
                "those of the group: they are fetched from another server"
            )
            host.lose_applied()
            return
        try:
            await self._apply_committed(host, self.directory)
        except TrimmedError as error:
            self._log.error(f"The files of the store are behind the group's log: {error}")
            host.lose_applied()

    async def _apply_committed(self, host: GroupHost, directory: StoreDirectory) -> None:
        async for entries in host.committed(directory.applied):
            size = sum(len(entry.body) for entry in entries)
            # Who hands over hears from the successor meanwhile: an end of a store may take longer.
            is_long = size > HERE_BYTES_MAX or host.is_handing_over
            if is_long or not directory.apply_here(entries):
                await self._patiently(self._applying, partial(directory.apply_all, entries))
            self._unkept += size
            self._settle(directory)
            if self._has_unkept is not None:
                self._has_unkept.set()
            self._look()

    async def _patiently(self, thread: ThreadPoolExecutor, action: Callable[[], Result]) -> Result:
        """What `action` gives, on a thread. While connections have all descriptors that the process
        may have, and while there is no space, it is tried again: nothing has failed for good."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await loop.run_in_executor(thread, action)
            except OSError as error:
                if is_final(error):
                    raise
                self._log.error(f"The group's files have to wait: {error}")
            except DiskFullError:
                self._note_full()
            await asyncio.sleep(AGAIN_SECONDS)

    def _settle(self, directory: StoreDirectory) -> None:
        waits = self._waiting
        while waits and waits[0][0] <= directory.applied:
            waits.popleft()[1].set_result(None)

    async def _keep(self, host: GroupHost) -> None:
        """Make durable what was applied, now and then."""
        assert self._has_unkept is not None
        while True:
            await self._has_unkept.wait()
            for _ in range(int(KEEP_SECONDS / 0.1)):
                if self._unkept >= KEEP_BYTES:
                    break
                await asyncio.sleep(0.1)
            self._has_unkept.clear()
            self._unkept = 0
            directory = self.directory
            if directory is None or self._failed:
                continue
            host.trim(await self._patiently(self._keeping, directory.keep))

    # -- copies for servers that lack what the log no longer has: `Checkpoints` of the host ------

    def held(self) -> bytes:
        """What another server need not send."""
        return encode_held(self.directory.held()) if self.directory is not None else b""

    async def open(self, held: bytes) -> "_Copy":
        """The files as they are, for another server."""
        if self.directory is None or self.directory.is_unknown:
            raise StorageError("the files of the store are not read yet, or cannot be")
        self._check_whole()
        loop = asyncio.get_running_loop()
        make = partial(self.directory.snapshot, decode_held(held))
        making = loop.run_in_executor(self._keeping, make)
        try:
            return _Copy(await asyncio.shield(making), self._check_whole)
        except asyncio.CancelledError:
            making.add_done_callback(_close_when_made)
            raise

    def _check_whole(self) -> None:
        """Who leads with damaged files has the only ones that count. Raises `StorageError`."""
        if self.directory is not None and self.directory.is_doubtful and not self._led:
            raise StorageError("the files of the store are damaged")

    async def install(self, index: int, pieces: AsyncIterator[bytes]) -> None:
        """Have the files of another server take the place of those here."""
        host, loop = self.host, asyncio.get_running_loop()
        await self._stop_reading()
        directory = self.directory
        if directory is None:
            directory = self.directory = await loop.run_in_executor(
                self._applying, self._make_directory, 0
            )
        try:
            await loop.run_in_executor(self._applying, directory.begin_install, index)
            async for piece in pieces:
                await loop.run_in_executor(self._applying, directory.take, piece)
            await loop.run_in_executor(self._applying, directory.install)
        except DiskFullError:
            self._note_full()
            await loop.run_in_executor(self._applying, directory.give_up_install)
            raise
        self._read(host)

    # -- who leads -------------------------------------------------------------------------------

    def _look(self) -> None:
        """See whether something has changed that the owner has to know."""
        host, directory = self.host, self.directory
        if host.failed and not self._failed:
            self._fail(host.failed)
        epoch = host.epoch
        if epoch and (directory is None or directory.applied < host.committed_index):
            epoch = self._led if epoch == self._led else 0  # not all is applied yet
        if self._failed:
            epoch = 0
        leader = self.leader_clients
        if self._led and not epoch:  # its entries are in the log or not; who waits knows neither
            self._end_waits("this server does not lead the group any more")
        is_full = self.is_full
        if (epoch, leader, is_full) != (self._led, self._leader, self._was_full):
            self._led, self._leader, self._was_full = epoch, leader, is_full
            self._owner.changed()

    def _fail(self, why: str) -> None:
        if not self._failed:
            self._failed = why
            self._led = 0
            self._end_waits()
            self._owner.failed_with(why)
            if self._host is not None and self._loop is not None and self._loop.is_running():
                self._host.fail(why)  # or it would go on leading, and nobody else could

    def _end_waits(self, why: str = "this server stops") -> None:
        while self._waiting:
            self._waiting.popleft()[1].set_exception(LostLeadError(self._failed or why))


class _Copy:
    """A `Snapshot` for the host: a `Checkpoint`."""

    def __init__(self, snapshot: Snapshot, check: Callable[[], None]) -> None:
        self.index = snapshot.index
        self._snapshot = snapshot
        self._check = check  # that the files are still good

    async def pieces(self) -> AsyncIterator[bytes]:
        """All of it."""
        loop = asyncio.get_running_loop()
        pieces = self._snapshot.pieces()
        while (piece := await loop.run_in_executor(None, next, pieces, b"")) != b"":
            self._check()
            yield piece
        self._check()

    async def close(self) -> None:
        """It is needed no more."""
        await asyncio.get_running_loop().run_in_executor(None, self._snapshot.close)


def _close_when_made(making: "asyncio.Future[Snapshot]") -> None:
    """Nobody waits any more for a copy that is being made."""
    if not making.cancelled() and making.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, making.result().close)
