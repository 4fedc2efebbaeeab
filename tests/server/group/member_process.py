"""A server of a group as a process of its own, which is told what to do line by line, in JSON.

python -m tests.server.group.member_process '{"name": ..., "port": ..., "routes": [...], ...}'

append    numbers as entries, some at a time; says which were acknowledged as they are
status    who leads, how far is committed
history   the numbers of what is committed
"""

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from slipstream.group import NotLeaderError
from slipstream.log.disk import OsDisk
from slipstream.server.group import GroupHost, GroupStore, LinkSettings, OutcomeUnknownError
from slipstream.server.log_sinks import StreamSink
from slipstream.server.logger import Logger
from slipstream.server.options import LoggingOptions


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class MemberProcess:
    """The host, and what it was told."""

    def __init__(self, host: GroupHost) -> None:
        self.host = host

    async def append(self, first: int, count: int, window: int, size: int = 0) -> None:
        numbers = iter(range(first, first + count))
        acknowledged: list[int] = []
        failed = {"unknown": 0, "refused": 0}
        begin = time.perf_counter()

        async def work() -> None:
            for number in numbers:
                try:
                    await self.host.append(b"%d".ljust(size) % number)
                except OutcomeUnknownError:
                    failed["unknown"] += 1
                except NotLeaderError:
                    failed["refused"] += 1
                else:
                    acknowledged.append(number)
                    if len(acknowledged) >= 100:
                        tell()

        def tell() -> None:
            say(acknowledged=acknowledged.copy())
            acknowledged.clear()

        await asyncio.gather(*(work() for _ in range(window)))
        tell()
        say(appended=failed, seconds=time.perf_counter() - begin)

    async def status(self) -> None:
        host = self.host
        say(
            status={
                "epoch": host.epoch,
                "leader": host.leader_name,
                "committed": host.committed_index,
                "links": sorted(host.linked_names),
                "failed": host.failed,
            }
        )

    async def history(self, index: int) -> None:
        numbers: list[int] = []
        if index:
            async for entries in self.host.committed():
                numbers += [int(entry.body) for entry in entries if entry.body]
                if entries[-1].index >= index:
                    break
        say(history=numbers)


async def main(name: str, port: int, routes: list[int], directory: str) -> None:
    options = LoggingOptions()
    host = GroupHost(
        name,
        "test",
        len(routes),
        GroupStore(OsDisk(), directory),
        LinkSettings(
            host="127.0.0.1",
            port=port,
            routes=[("127.0.0.1", route) for route in routes],
            secret=b"of the group",
        ),
        Logger(StreamSink(options, sys.stderr), options),
    )
    await host.start()
    member = MemberProcess(host)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        what = json.loads(line)
        task = loop.create_task(getattr(member, what.pop("do"))(**what))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await host.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(**json.loads(sys.argv[1])))
