"""A server of a group, which leads or follows, and may come to do the other at any time.

It leads: a `Server` runs on the store, whose disk is that of the group. It follows: the entries of
the leader go into the files, and clients are relayed to the leader. From leading it falls back by
leaving everything where it is: what was not committed is nowhere but in memory.
"""

import asyncio
import gc
import os
import sys
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib import import_module
from secrets import token_hex

import msgspec

from slipstream.errors import ConfigError, Error
from slipstream.log.disk import DirectoryLock, OsDisk
from slipstream.model.durations import SECOND
from slipstream.server.cluster_options import ClusterOptions
from slipstream.server.engine_options import engine_options
from slipstream.server.group import make_host, server_name_of
from slipstream.server.logger import Logger
from slipstream.server.monitoring import MonitoringListener, Reload
from slipstream.server.monitoring.start import limits_of_jetstream, start_monitoring
from slipstream.server.options import ServerOptions
from slipstream.server.process_files import urls
from slipstream.server.relay_proof import TOKEN_SIZE, relay_key
from slipstream.server.replica.about import AboutServer
from slipstream.server.replica.follower_endpoints import follower_endpoints
from slipstream.server.replica.follower_scrub import FollowerScrub
from slipstream.server.replica.follower_view import FollowerView, idle_monitor
from slipstream.server.replica.group_disk import GroupDisk
from slipstream.server.replica.group_view import GroupView
from slipstream.server.replica.operations import Kind, Operation, encode_operations
from slipstream.server.replica.relay import Relay
from slipstream.server.replica.replica import Replica
from slipstream.server.replica.store_directory import StoreDirectory
from slipstream.server.runtime import Runtime, keep_what_is_there
from slipstream.server.server import Server

AGAIN_SECONDS = 1.0  # after a leader could not open the store
SWITCH_SECONDS = 0.0005  # after which a busy thread lets another one run
ABOUT_EVERY_SECONDS = 2.0  # a follower says what is true of it
DROP_SECONDS = 2.0  # after which the memory of a lead that has ended is given back
HAND_OVER_SECONDS_MAX = 2.0  # for another server to lead, when this one stops
REFUSALS_SECONDS = 600.0  # damage is refused as often as there are servers, in this time ...
REFUSAL_SECONDS = 10.0  # ... not counting those that follow so soon: others may be slow to lead


class GroupLead:
    """What the leader's `Server` needs."""

    def __init__(
        self,
        replica: Replica,
        epoch: int,
        disk: GroupDisk,
        root: str,
        *,
        server_id: str,
        endpoints: MonitoringListener,
        relay_key: bytes,
    ) -> None:
        self.disk = disk
        self.root = root
        self.server_id = server_id
        self.endpoints = endpoints
        self.relay_key = relay_key
        self.run_ahead = disk.run_ahead
        self.run_gathered = disk.run_gathered
        self._replica = replica
        self._epoch = epoch

    def may_answer(self) -> bool:
        """Whether all that is committed anywhere is committed here."""
        return (
            self._replica.may_read()
            and self._replica.leads == self._epoch
            and not self.disk.is_lost
        )


class GroupServer:
    """See the module's text. It has what a `Server` has for the process around it. `options`
    are validated already."""

    def __init__(self, options: ServerOptions, log: Logger) -> None:
        self.options = options
        self.log = log
        self.failed = ""
        self._owns_process = False
        self._cluster = options.cluster
        self._directory = options.jetstream.store_dir
        self._check_directory()
        self._disk = OsDisk()  # with the files of the store
        self._lock: DirectoryLock | None = None
        self._gone: set[str] = set()  # of followers that bring clients, at the last look
        self._successor: str | None = None  # to whom this server is to hand over; "" to anybody
        self._handing_over: asyncio.Task[None] | None = None
        self._stops = False  # and so it ends its store, whether another server can lead or not
        self._replica: Replica | None = None
        self._relay: Relay | None = None
        self._reload: Reload | None = None  # reads the configuration again
        self._idle = idle_monitor(options)  # of this process while it follows
        self._endpoints: MonitoringListener | None = None  # over HTTP, whoever leads
        self._server: Server | None = None  # while this one leads
        self._token = token_hex(TOKEN_SIZE)  # what followers prove with that they bring clients
        self._begins_to_lead = False  # the server is on its way
        self._epoch = 0  # in which it does
        self._lead_disk: GroupDisk | None = None  # that it does it on
        self._last_epoch = 0  # in which it has opened the store
        self._has_earlier_lead = False  # whose engine may be in memory still
        self._damage = ""  # of the files here, which are to be had from another server
        self._refusals: list[float] = []  # when it would not lead over damage
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._about = AboutServer(options, self._idle.engine.server_id)
        self._telling: asyncio.Task[None] | None = None
        self._scrub = FollowerScrub(
            self._disk,
            self._followed_directory,
            lambda: self.options.jetstream.scrub,
            self._found_damage,
        )
        self._scrubbing: asyncio.Task[None] | None = None
        self._scrubbed = ""  # damage of the files here, as the scrub has found it last

    def _check_directory(self) -> None:
        options = self.options.jetstream
        if not options.store_dir:
            raise ConfigError(
                "cluster: a server of a group keeps its store: name it (jetstream.store_dir, -sd)"
            )
        if options.log_dir:
            raise ConfigError(
                "cluster: the store of a group is in one directory: leave log_dir out"
            )
        if os.path.isdir(f"{options.store_dir}/commit-log"):
            raise ConfigError(
                f"cluster: {options.store_dir} is the store of a server by itself, and a group "
                "begins with an empty one: name another directory, and bring the streams over by "
                "a backup (docs/group.md)"
            )
        group, store = f"{options.store_dir}/group", f"{options.store_dir}/store"
        if not os.path.isdir(group) and os.path.exists(f"{store}/applied.0"):
            raise ConfigError(
                f"cluster: {group} is gone, with what this server has promised to the others, and "
                f"{store} is there: put it back, or have this server join the group anew with an "
                f"empty {options.store_dir}"
            )

    # -- what the process around it asks ---------------------------------------------------------

    @property
    def runtime(self) -> Runtime | None:
        """Of the server that leads; None while it follows."""
        return self._server.runtime if self._server is not None else None

    @property
    def monitoring(self) -> MonitoringListener | None:
        """Its endpoints, which answer whether it leads or follows."""
        return self._endpoints

    def ports(self) -> dict[str, list[str]]:
        """The URLs of every listener, by kind."""
        if self._server is not None:
            return self._server.ports()
        scheme = "nats" if self.options.tls is None else "tls"
        found = {"nats": urls(scheme, self.options.host, self.options.port)}
        if self._endpoints is not None:
            endpoints = self._endpoints.urls(self.options.monitoring_host)
            found |= {"monitoring": endpoints} if endpoints else {}
        return found

    @property
    def leads(self) -> bool:
        """Whether this server answers clients itself."""
        return self._server is not None

    @property
    def leader_name(self) -> str:
        """Who leads, as far as this server knows."""
        return server_name_of(self._replica.host.leader_name) if self._replica is not None else ""

    @property
    def leader_address(self) -> str:
        """Host and port of the server that answers who connects here; "" while none does."""
        if self._server is not None:
            return self._client_address()
        return self._relay.leader if self._relay is not None else ""

    def reload_here(self, options: ServerOptions) -> None:
        """Go on with other options, of which those of the group and the store are the same. Raises
        `ConfigError`; nothing has changed then."""
        from slipstream.server.config import plan_reload  # few need it, and it reads files
        from slipstream.server.reload import reload_follower

        server = self._server
        if server is not None:
            plan_reload(self.options, options)  # also of what the leader's server is not told
            server.reload_here(self._options_to_lead(options, server.options.jetstream.store_dir))
        else:
            reload_follower(self.log, self.options, options)
        self.options = options
        if self._relay is not None:
            self._relay.write_deadline_seconds = options.limits.write_deadline / SECOND
        self._idle.follow(options, *limits_of_jetstream(options))
        port = self._idle.engine.options.port
        self._idle.engine.options = engine_options(options)
        self._idle.engine.options.port = port
        follows = server is None and not self._begins_to_lead
        if follows and self._replica is not None and self._relay is not None:
            self._show_follower(self._replica, self._relay)

    def _options_to_lead(self, options: ServerOptions, root: str) -> ServerOptions:
        """For a server on the store in `root`, which knows nothing of a group."""
        return msgspec.structs.replace(
            options,
            port=self._relay.port if self._relay is not None else options.port,
            cluster=ClusterOptions(),
            jetstream=msgspec.structs.replace(options.jetstream, store_dir=root),
        )

    def have_process_alone(self) -> None:
        """The process is only this server. What the engine asks of the disk goes through another
        thread, which does not wait long for its turn."""
        self._owns_process = True
        sys.setswitchinterval(SWITCH_SECONDS)
        keep_what_is_there()
        self._poll_busily()

    def _poll_busily(self) -> None:
        if self._owns_process and self.options.busy_poll and self.runtime is not None:
            self.runtime.poll_busily()

    def reload_when_asked(self, reload: Reload) -> None:
        """Have the configuration read again when the system account asks the leader for it."""
        self._reload = reload
        if self._server is not None:
            self._server.reload_when_asked(reload)

    def hand_over(self, successor: str = "") -> None:
        """Have another server lead, soon. Raises `Error`."""
        if self._server is None or self._news is None:
            raise Error("this server does not lead the group: ask the one that does")
        others = self.successors
        if not others:  # the store would be closed for nothing, and opened again
            raise Error(
                "no other server has everything, so none could lead: this one is the whole group, "
                "or goes on alone until the other one is back"
            )
        if successor and successor not in others:
            raise Error(
                f"{successor} is no other server of the group: choose from {', '.join(others)}"
            )
        self._successor = successor
        self._news.set()

    @property
    def successors(self) -> list[str]:
        """The servers that could lead in place of this one: the other members, unless they are
        away."""
        host = self._replica.host if self._replica is not None else None
        members = host.in_sync if host is not None else ()
        names = (server_name_of(member) for member in members)
        return [name for name in names if name != self.options.server_name]

    # -- the beginning, the end ------------------------------------------------------------------

    async def start_here(self) -> None:
        """Start; returns once this server takes clients, also while nobody leads. Raises
        `Error`."""
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        options, log = self.options, self.log
        if options.telemetry.enabled:  # a package that is missing is missed now
            import_module("slipstream.server.telemetry")
        self._lock = DirectoryLock(self._directory)
        directory = self._directory
        disk = self._disk
        replica = self._replica = Replica(
            lambda: make_host(self._cluster, options, OsDisk(), f"{directory}/group", log),
            lambda log_end: StoreDirectory(disk, f"{directory}/store", log_end),
            self,
            log,
        )
        relay = self._relay = Relay(options.host, max(options.port, 0), log)
        relay.write_deadline_seconds = options.limits.write_deadline / SECOND
        try:
            await self._loop.run_in_executor(None, replica.start)
            await relay.listen()
            self._idle.engine.options.port = relay.port
            self._endpoints = await start_monitoring(self._idle, options, log)
            self._show_follower(replica, relay)
        except OSError as error:
            await self._end()
            raise Error(f"cannot listen for clients on port {options.port}: {error}") from error
        except BaseException:
            await self._end()
            raise
        self._task = self._loop.create_task(self._follow_news(), name="group leadership")
        self._telling = self._loop.create_task(self._say_of_itself(), name="about this server")
        self._scrubbing = self._loop.create_task(self._run_scrub(), name="scrub of a follower")
        log.info(f"Server is ready, in the group {self._cluster.name}")

    def _show_follower(self, replica: Replica, relay: Relay) -> None:
        """Answer over HTTP as a server that follows."""
        if self._endpoints is None:
            return
        view = FollowerView(self._cluster.name, self.options, replica, relay, lambda: self.failed)
        self._endpoints.show(self._idle, follower_endpoints(view))

    async def stop_here(self) -> None:
        """Stop. A leader hands over first, if there is somebody to lead."""
        self._stops = True
        found = (self._task, self._telling, self._scrubbing)
        tasks = [task for task in found if task is not None]
        self._task = self._telling = self._scrubbing = None
        if self._relay is not None:
            self._relay.stop_listening()  # who comes now had better go to another server
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self._handing_over is not None:  # it was asked to step down just before
                await self._handing_over
            if self._server is not None:
                await self._hand_over("")
            elif self._replica is not None and self._replica.leads:  # it had just begun to
                await self._hand_over_as_it_is(self._replica, "")
            if self._server is not None:  # with a full disk it is left as it is
                await self._follow()
        except Exception as error:
            self._tell(error)
        await self._end()

    async def _hand_over(self, successor: str, is_slow: bool = False) -> None:
        """Close the store in good order, so that the next leader opens it quickly, and have
        `successor` lead. What was begun comes to its end, also if this server stops meanwhile."""
        assert self._loop is not None
        begun = self._handing_over = self._loop.create_task(
            self._close_and_hand_over(successor, is_slow), name="handing over"
        )
        try:
            await asyncio.shield(begun)
        finally:
            if begun.done():
                self._handing_over = None

    async def _close_and_hand_over(self, successor: str, is_slow: bool) -> None:
        replica, server = self._replica, self._server
        assert replica is not None
        assert server is not None
        assert server.runtime is not None
        assert self._loop is not None
        assert self._relay is not None
        if replica.is_full:
            await self._hand_over_as_it_is(replica, successor)
            return
        try:
            successor = await replica.prepare_hand_over(successor)
        except Error as error:
            if not self._stops:
                self.log.warn(f"No other server can lead just now: {error}")
                return
        runtime = server.runtime
        self._server = None
        self._relay.answer_here(None)
        self._show_follower(replica, self._relay)
        replica.let_wait_for_space(False)
        try:
            try:
                await server.stop_here()
            except Error as error:  # such as by a disk that is full since a moment ago
                self.log.error(f"The store is left as it is: {error}")
            await self._pass_on(replica, successor, is_slow, runtime.left)
        finally:
            self._leave_disk()

    async def _pass_on(
        self, replica: Replica, successor: str, is_slow: bool, left: "Future[None] | None"
    ) -> None:
        """Have `successor` lead once it has all that this server has `left` in its store."""
        try:
            await replica.hand_over(successor, is_slow)
        except Error as error:
            self.log.debug(f"No server takes over: {error}")
            if left is not None:
                await asyncio.gather(asyncio.wrap_future(left), return_exceptions=True)
        else:
            with suppress(TimeoutError):
                await self._led_no_more(replica)

    async def _have_lead(self, replica: Replica, successor: str, is_slow: bool = False) -> None:
        """Hand over, and follow; where the store was not closed and nobody leads, go on."""
        await self._hand_over(successor, is_slow)
        if self._server is None or replica.leads != self._epoch:
            await self._follow()

    async def _hand_over_as_it_is(self, replica: Replica, successor: str) -> None:
        """Have `successor` lead, as `_hand_over` does; with a full disk nothing can be closed in
        good order: what waits for space there is left."""
        try:
            await replica.hand_over(successor)
        except Error as error:
            self.log.debug(f"{successor or 'No server'} does not take over: {error}")
        else:
            with suppress(TimeoutError):
                await self._led_no_more(replica)

    async def _led_no_more(self, replica: Replica) -> None:
        """Wait until this server does not lead. Where it is about to end, until another one does:
        in a group of two that one needs what this one says to it. Raises TimeoutError."""
        assert self._news is not None
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                while replica.leads or (self._stops and not replica.leader_url):
                    self._news.clear()
                    await self._news.wait()
        finally:  # whatever has come of it: who follows the news has not seen what came meanwhile
            self._news.set()

    async def _end(self) -> None:
        if self._endpoints is not None:
            self._endpoints.close()
            self._endpoints = None
        if self._relay is not None:
            await self._relay.close()
        if self._replica is not None and self._loop is not None:
            await self._loop.run_in_executor(None, self._replica.stop)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- leading and following -------------------------------------------------------------------

    def changed(self) -> None:
        """Of `Replica`: who leads has changed, on its thread."""
        if self._loop is not None and self._news is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def failed_with(self, why: str) -> None:
        """Of `Replica`: this server takes no part in the group any more, on its thread."""
        self.failed = why
        self.changed()

    async def _say_of_itself(self) -> None:
        """Have the leader know what is true of this server while it follows."""
        replica, relay = self._replica, self._relay
        assert replica is not None
        assert relay is not None
        while True:
            relay.name = replica.host.name  # it gets another one when it joins anew
            if self._server is None:
                about = self._about.encode(
                    relay.port, self._client_address(), len(relay.clients), relay.total
                )
                replica.say_of_itself(about)
            elif self.runtime is not None:  # others may have said something of themselves
                self.runtime.turn(self.runtime.engine.group_changed)
                self._give_up_clients(replica, self.runtime)
            await asyncio.sleep(ABOUT_EVERY_SECONDS)

    def _give_up_clients(self, replica: Replica, runtime: Runtime) -> None:
        """End the connections of clients by followers that have been gone for two looks. A machine
        that has lost its power says nothing, and for minutes its clients would be sent their share
        of what queue groups get."""
        host = replica.host
        brought = {one.brought_by for one in runtime.connections}
        members = {one.name for one in host.followers()}  # others go by another name by now
        gone, before = brought & members - host.linked_names, self._gone
        self._gone = gone
        if lost := gone & before:
            count = runtime.give_up_clients_of(lost)
            names = ", ".join(sorted(server_name_of(name) for name in lost))
            self.log.info(f"Gave up {count} clients that came by {names}, which is gone")

    async def _follow_news(self) -> None:
        assert self._news is not None
        replica, relay = self._replica, self._relay
        assert replica is not None
        assert relay is not None
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._act_on(replica)
            except Exception as error:
                self._tell(error)
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._news.set)
                try:
                    await self._leave_to_others(replica)
                except Exception as another:  # it is tried again
                    self._tell(another)
            if self.runtime is not None:
                self.runtime.turn(self.runtime.engine.group_changed)
                if replica.is_full:
                    self.runtime.turn(self.runtime.engine.ask_for_room_again)
            if self._server is None:
                leader, token = replica.leader_clients
                relay.follow(
                    self._leader_elsewhere(replica, leader), relay_key(self._cluster.secret, token)
                )

    def _tell(self, error: Exception) -> None:
        if isinstance(error, (OSError, Error)):
            self.log.error(f"Cannot lead the group, or follow: {error}")
        else:
            self.log.fault("leading the group, or following", error)

    async def _act_on(self, replica: Replica) -> None:
        """Lead, follow or hand over, as things are. Raises OSError, `Error`."""
        successor, self._successor = self._successor, None
        wish = replica.take_wish()
        disk = self._lead_disk
        is_lost = disk is not None and disk.is_lost  # an entry was not answered: open it anew
        if self._server is not None and (replica.leads != self._epoch or is_lost):
            await self._follow()
            await self._renew(replica)
        elif self._server is not None and successor is not None:
            await self._have_lead(replica, successor)
        elif self._server is not None and wish is not None:
            is_slow = not wish.is_full
            await self._have_lead(replica, server_name_of(wish.successor), is_slow=is_slow)
        if replica.leads and self._server is None:
            await self._lead(replica.leads)

    async def _leave_to_others(self, replica: Replica) -> None:
        """This server cannot lead just now: another one may be able to."""
        await self._follow()
        if self._damage:
            await self._renew(replica)
            return
        if replica.leads:
            try:
                await replica.hand_over()
            except Error as error:
                self.log.error(f"No other server can lead either: {error}")

    async def _lead(self, epoch: int) -> None:
        """Open the store, and serve. Raises `Error`."""
        replica, relay = self._replica, self._relay
        assert replica is not None
        assert relay is not None
        begin = time.perf_counter()
        self.log.info(f"This server leads the group in epoch {epoch}")
        relay.follow("")  # who comes waits here
        self._drop_earlier_lead()
        self._epoch = epoch
        assert replica.directory is not None
        # Their clients come at once, and wait here.
        announced = replica.announce(self._client_address(), epoch, self._token)
        replica.let_wait_for_space(False)  # another server may have some
        # What was under way then has an outcome first; and the store is not opened without space.
        if epoch == self._last_epoch or replica.is_full:
            await asyncio.wrap_future(announced)
        self._last_epoch = epoch
        root = replica.directory.root
        disk = self._lead_disk = GroupDisk(
            self._disk,
            root,
            partial(replica.submit, epoch=epoch),
            self.changed,
            lambda: replica.is_full,
            replica.had_no_space,
            self._may_refuse,
        )
        began_with = self.options
        server = Server(config=self._options_to_lead(began_with, root), log=self.log)
        key = relay_key(self._cluster.secret, self._token)
        assert self._endpoints is not None
        server.lead = GroupLead(
            replica,
            epoch,
            disk,
            root,
            server_id=self._idle.engine.server_id,
            endpoints=self._endpoints,
            relay_key=key,
        )
        server.group = GroupView(self._cluster, self._client_address(), replica, self.hand_over)
        self._begins_to_lead = True
        try:
            await server.start_here()
            if self.options is not began_with:  # they were read again meanwhile
                server.reload_here(self._options_to_lead(self.options, root))
        except BaseException:
            await server.abandon_here()
            self._leave_disk()
            self._show_follower(replica, relay)
            raise
        finally:
            self._begins_to_lead = False
            replica.let_wait_for_space(True)
        self._server = server
        if self._reload is not None:
            server.reload_when_asked(self._reload)
        self._poll_busily()
        assert server.runtime is not None
        relay.answer_here(server.runtime.accept)
        await asyncio.wrap_future(announced)
        if replica.directory.refusing:  # where that is lost, the next one to lead says it
            self._say_who_refuses(replica, "")
        self.log.info(f"Leads since {time.perf_counter() - begin:.3f} s")

    async def _follow(self) -> None:
        """Leave what was begun, and relay clients from now on."""
        relay = self._relay
        assert relay is not None
        relay.answer_here(None)
        self._epoch = 0
        if self._lead_disk is not None:
            self._lead_disk.leave()
        if self._server is not None:
            assert self._replica is not None
            self._replica.give_up_waiting()
            server, self._server = self._server, None
            self.log.info("This server leads the group no more")
            self._show_follower(self._replica, relay)  # before, or it would say what is no more
            try:
                await server.abandon_here()
            finally:
                self._leave_disk()

    def _may_refuse(self) -> bool:
        """Whether damage is a reason to have another server lead, on any thread. It is not where no
        other one is, or all others have refused to, and not again and again: then others have the
        same damage, and what can be read is worth more."""
        replica = self._replica
        if replica is None or replica.directory is None:
            return False
        servers = {*replica.host.members}
        if servers <= {replica.host.name, *replica.directory.refusing}:
            return False
        now = time.monotonic()
        self._refusals = [at for at in self._refusals if at > now - REFUSALS_SECONDS]
        if len(self._refusals) >= len(servers):
            return False
        if not self._refusals or now > self._refusals[-1] + REFUSAL_SECONDS:
            self._refusals.append(now)
        return True

    async def _renew(self, replica: Replica) -> None:
        """Where the files here are damaged: have another server lead, and its files take the place
        of these. Where that fails, this server goes on with what it has when it leads again."""
        damage, self._damage = self._damage, ""
        if not damage:
            return
        self.log.error(f"Damage in the files here: {damage}; they are fetched from another server")
        try:
            await self._leave_over_damage(replica)
            await asyncio.get_running_loop().run_in_executor(None, replica.renew)
        except (Error, TimeoutError) as error:
            self.log.error(f"No other server leads, which could send its files: {error!r}")

    async def _leave_over_damage(self, replica: Replica) -> None:
        """Have another server lead, whether or not the others hear why. Raises `Error` and
        TimeoutError if this one leads still."""
        if replica.leads:
            try:
                async with asyncio.timeout(HAND_OVER_SECONDS_MAX):
                    await asyncio.wrap_future(self._say_who_refuses(replica, replica.host.name))
            except (Error, TimeoutError) as error:
                self.log.error(f"Others may not know that this server refuses to lead: {error!r}")
        try:
            if replica.leads:
                await replica.hand_over()
                await self._led_no_more(replica)
        except (Error, TimeoutError):
            if replica.leads:
                raise

    def _say_who_refuses(self, replica: Replica, name: str) -> "Future[None]":
        """Have all servers know that one refuses to lead over damage; "": none does any more. Else
        each of them could leave it to the others, who have the same damage."""
        return replica.submit(encode_operations([Operation(Kind.REFUSES, name)]))

    def _followed_directory(self) -> StoreDirectory | None:
        """The files here while this server follows, and has all of them; else None."""
        replica = self._replica
        if replica is None or self._server is not None or replica.leads or self._damage:
            return None
        host = replica.host
        return None if host.is_installing or host.failed else replica.directory

    async def _run_scrub(self) -> None:
        try:
            await self._scrub.run()
        except Exception as error:  # all else goes on without it
            self.log.fault("reading the files here again", error)

    async def _found_damage(self, path: str, fault: str) -> None:
        """Of the scrub: have another server's files take the place of those here, once all servers
        are there, since this one cannot lead meanwhile. Where those have the same damage that is of
        no use, so it is not done for it again."""
        replica, loop = self._replica, self._loop
        assert replica is not None
        assert loop is not None
        damage = f"the scrub found damage in {path}: {fault}"
        if damage == self._scrubbed:
            self.log.error(f"{damage}; those of another server had it, too")
            return
        host = replica.host
        if missing := {*host.members} - {host.name, *host.linked_names}:
            away = ", ".join(sorted(map(server_name_of, missing)))
            self.log.error(f"{damage}; they are fetched once {away} is there")
            await loop.run_in_executor(None, replica.distrust)
            return
        self.log.error(f"{damage}; the files are fetched from another server")
        try:
            await loop.run_in_executor(None, replica.renew)
        except Error as error:
            self.log.error(f"No other server leads, which could send its files: {error}")
        else:
            self._scrubbed = damage

    def _leave_disk(self) -> None:
        """Nobody uses the disk of this lead any more: release its files."""
        disk, self._lead_disk = self._lead_disk, None
        if disk is not None:
            self._drop_earlier_lead_later()
            self._damage = self._damage or disk.damage
            disk.leave()
            disk.close()

    # -- memory of earlier leads -----------------------------------------------------------------

    def _drop_earlier_lead_later(self) -> None:
        """An engine has ended, and cycles keep it in memory, with the indexes of its streams. In a
        process that is only a server, cycles are hardly ever looked for otherwise."""
        if self._owns_process and self._loop is not None:
            self._has_earlier_lead = True
            # Not now, when others may need this server to find a leader.
            self._loop.call_later(DROP_SECONDS, self._drop_earlier_lead)

    def _drop_earlier_lead(self) -> None:
        if self._has_earlier_lead and self._server is None:
            self._has_earlier_lead = False
            gc.collect()

    def _client_address(self) -> str:
        """Host and port by which the other servers find this one's clients' port."""
        options = self.options
        port = self._relay.port if self._relay is not None else options.port
        host, advertised = options.host, options.client_advertise
        if advertised:
            before, _, last = advertised.rpartition(":")
            if before and last.isdigit() and (before.endswith("]") or ":" not in before):
                return advertised
            host = advertised
        elif host in ("0.0.0.0", "::", ""):
            host = self._cluster.advertise.rpartition(":")[0] or os.uname().nodename
        host = host.strip("[]")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _leader_elsewhere(self, replica: Replica, leader: str) -> str:
        """Where clients find the leader, which is told in `leader`; "" if that is here, as far as
        this server can see: each connection that it relayed to itself would make another one."""
        if replica.leads:
            return ""
        if leader and leader == self._client_address():
            self.log.error(
                f"{self.leader_name} leads the group, and tells that clients find it at "
                f"{leader}, which this server says of itself: give each server an address of its "
                "own (host, client_advertise); clients are not brought to the leader"
            )
            return ""
        return leader
