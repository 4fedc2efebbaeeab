"""The connection over which a task reads, which its worker keeps for the task that comes next.

Spark's Python workers live on from task to task, and a task of a small micro-batch takes less time
than connecting does. One connection is kept, with its event loop, after a task that came to its
end; it goes with its worker, which Spark ends after a minute without work. Between two tasks
nothing runs on the loop: whether the connection still stands shows when the next task begins, which
opens another one if it does not.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import uvloop
from pyspark import TaskContext

from slipstream.spark.connections import connect
from slipstream.spark.options import ServerOptions

if TYPE_CHECKING:
    from slipstream.client import Connection

T = TypeVar("T")


class TaskConnection:
    """An event loop, and a connection on it once it is asked for."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._connection: Connection | None = None

    def run(self, work: Coroutine[object, object, T]) -> T:
        """What the coroutine returns or raises."""
        return self._runner.run(work)

    async def opened(self) -> "Connection":
        """The connection; a new one if there is none that stands."""
        await asyncio.sleep(0)  # a server that has gone meanwhile is noticed here
        if self._connection is not None and not self._connection.is_connected:
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = await connect(self.options, "spark-task", patient=True)
        return self._connection

    async def rest(self) -> None:
        """Send what the task has left to be sent, before nothing runs on the loop."""
        await asyncio.sleep(0)

    def close(self) -> None:
        """End both."""
        if self._connection is not None:
            self.run(self._connection.close())
        self._runner.close()


_kept: list[TaskConnection] = []
"""One at most; none while a task uses it."""


@contextmanager
def task_connection(options: ServerOptions) -> Iterator[TaskConnection]:
    """The connection of a task: the one that the worker has kept, if the options are the same."""
    found = _kept.pop() if _kept else None
    if found is not None and found.options != options:
        found.close()
        found = None
    if found is None:
        found = TaskConnection(options)
    try:
        yield found
    except BaseException:
        found.close()
        raise
    if TaskContext.get() is None or _kept:
        found.close()
    else:
        found.run(found.rest())
        _kept.append(found)
