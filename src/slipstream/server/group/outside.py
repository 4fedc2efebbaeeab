"""A register outside of the group, on an event loop: its requests go to a store, one by one.

The store stands above the server (`slipstream.registers`), which sees it as `RegisterStore`. Each
request has its time; one that takes longer counts as not answered, and may take effect for all
that. When a newer request leaves, an older one that is under way is not waited for any more.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from slipstream.errors import Error
from slipstream.group.outside_register import (
    Answer,
    Changed,
    Failed,
    Found,
    Get,
    OutsideRegister,
    Request,
    Stored,
)
from slipstream.server.logger import Logger

REQUEST_SECONDS_MAX = 2.0


class RegisterStore(Protocol):
    """One small object that is replaced on a condition. Its methods raise `Error` or OSError where
    nobody can say what has become of a call."""

    @property
    def called(self) -> str:
        """Where it is, as people name it, without passwords; the same on all servers."""

    async def get(self) -> tuple[bytes, str]:
        """The content, which may be stale, and its version; no bytes where there is none."""

    async def put(self, data: bytes, version: str) -> bool:
        """Replace the content if it is at that version; False if it is at another one. The version
        of where there never was a content is ""."""

    async def close(self) -> None:
        """End its connections."""


class RegisterCarrier:
    """Carries the requests of `register` to `store`; `answered` is told each answer."""

    def __init__(
        self,
        register: OutsideRegister,
        store: RegisterStore,
        answered: Callable[[int, Answer], None],
        log: Logger,
    ) -> None:
        self._register = register
        self._store = store
        self._answered = answered
        self._log = log
        self._fault = ""
        self._visits: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """Have what the register asks leave, and say it when something is wrong with the store."""
        while (request := self._register.take_request()) is not None:
            task = asyncio.get_running_loop().create_task(self._visit(request))
            self._visits.add(task)
            task.add_done_callback(self._visits.discard)
        fault = self._register.fault
        if fault and not self._fault:
            self._log.warn(
                f"The register {self._store.called} is of no use just now: {fault}. Who leads goes "
                "on; but no server can begin to lead, join or leave"
            )
        elif self._fault and not fault:
            self._log.info(f"The register {self._store.called} is of use again")
        self._fault = fault

    async def _visit(self, request: Request) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                answer = await self._ask(request)
        except TimeoutError:
            answer = Failed(f"no answer came within {REQUEST_SECONDS_MAX:g} s")
        except (Error, OSError) as error:
            answer = Failed(str(error) or repr(error))
        except Exception as error:  # of a package below, or ours: the group goes on without
            self._log.fault("asking the register", error)
            answer = Failed(repr(error))
        self._answered(request.number, answer)

    async def _ask(self, request: Request) -> Answer:
        if isinstance(request, Get):
            return Found(*await self._store.get())
        is_stored = await self._store.put(request.data, request.version)
        return Stored() if is_stored else Changed()

    async def stop(self) -> None:
        """Wait for nothing more. A put that is under way may take effect."""
        visits = list(self._visits)
        for task in visits:
            task.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        await self._store.close()
