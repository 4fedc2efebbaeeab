"""Who awaits an answer goes on inside the read that brought it, and otherwise as with a future."""

import asyncio
import contextvars
import subprocess
import sys

import pytest

import slipstream
from slipstream.client.reply_future import ReplyFuture
from slipstream.client.write_buffer import WriteBuffer

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME")


def answer() -> ReplyFuture:
    return ReplyFuture(WriteBuffer(asyncio.get_running_loop(), 1000))


async def test_an_answer_that_is_there_already_is_not_waited_for() -> None:
    given = answer()
    given.set_result(17)
    assert await given == 17
    assert (given.done(), given.cancelled(), given.exception()) == (True, False, None)


async def test_an_answer_may_be_an_error() -> None:
    given = answer()
    asyncio.get_running_loop().call_soon(given.set_exception, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await given
    assert isinstance(given.exception(), ValueError)


async def test_cancelling_the_task_cancels_the_answer() -> None:
    given = answer()

    async def ask() -> object:
        return await given

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert given.cancelled()
    assert not given.cancel()


async def test_one_task_awaits_it() -> None:
    given = answer()
    given.add_done_callback(print)
    with pytest.raises(RuntimeError):
        given.add_done_callback(print)
    assert given.remove_done_callback(print) == 1
    assert given.remove_done_callback(print) == 0


async def test_tasks_keep_their_context_over_an_answer(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda message: message.respond(b"ok"))

    async def ask(name: str) -> tuple[str, bool]:
        NAME.set(name)
        before = asyncio.current_task()
        await nc.request(subject)
        return NAME.get(), before is asyncio.current_task()

    names = [f"task {i}" for i in range(20)]
    found = await asyncio.gather(*(ask(name) for name in names))
    assert found == [(name, True) for name in names]
    assert NAME.get("nobody") == "nobody"


async def test_who_goes_on_may_close_the_connection_under_the_others(server_url: str) -> None:
    nc = await slipstream.connect(server_url)
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda message: message.respond(b"ok"))

    async def ask() -> bytes:
        data = (await nc.request(subject)).data
        await nc.close()
        return data

    found = await asyncio.gather(*(ask() for _ in range(10)), return_exceptions=True)
    assert found.count(b"ok") >= 1
    assert nc.is_closed


async def test_a_request_without_time_ends_at_once(nc: slipstream.Connection) -> None:
    subject = nc.new_inbox()
    async with await nc.subscribe(subject):
        for timeout in (0, 0.01):
            with pytest.raises(slipstream.client.TimeoutError):
                await nc.request(subject, timeout=timeout)
        assert nc.requests_pending == 0


PROGRAM = """
import asyncio, sys
import slipstream

async def main():
    nc = await slipstream.connect(sys.argv[1])
    subject = nc.new_inbox()
    await nc.subscribe(subject, handler=lambda message: message.respond(b"ok"))
    await nc.request(subject)
    sys.exit(23)

run = asyncio.run
if sys.argv[2] == "uvloop":
    import uvloop
    run = uvloop.run
run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_may_exit_where_an_answer_has_come(server_url: str, loop: str) -> None:
    command = [sys.executable, "-c", PROGRAM, server_url, loop]
    done = subprocess.run(command, capture_output=True, timeout=30, text=True)
    assert (done.returncode, done.stderr) == (23, "")
