"""nats-py as a person would use it: publishes numbered messages and consumes them at the same time.

`python nats_py.py STREAM URLS`; what it says and what it is told is in `tests/group_clients`.
"""

import asyncio
import itertools
import sys
import time

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

ANSWER_SECONDS_MAX = 0.5  # less than what a change of leader takes, so that all comes soon after
PAUSE_SECONDS = 0.01  # between two messages
AGAIN_SECONDS = 0.02  # after an error
BATCH = 32


def say(*words: object) -> None:
    """An event, with its time in microseconds."""
    print(words[0], time.time_ns() // 1000, *words[1:], flush=True)


async def connect(urls: str) -> Client:
    """A connection that is made again for as long as it takes."""

    async def disconnected() -> None:
        say("disconnected")

    async def reconnected() -> None:
        say("reconnected")

    async def failed(error: Exception) -> None:
        say("note", repr(error))

    return await nats.connect(
        urls.split(","), max_reconnect_attempts=-1, disconnected_cb=disconnected,
        reconnected_cb=reconnected, error_cb=failed,
    )  # fmt: skip


async def publish(js: JetStreamContext, stream: str, stop: asyncio.Event) -> None:
    """One message after the other, each with its id until it is acknowledged."""
    for number in itertools.count():
        if stop.is_set():
            say("stopped", number)
            return
        for tries in itertools.count(1):
            try:
                ack = await js.publish(
                    f"{stream}.s", b"%d" % number, timeout=ANSWER_SECONDS_MAX,
                    headers={"Nats-Msg-Id": str(number)},
                )  # fmt: skip
            except Exception as error:  # whatever it is, a person would try again
                say("refused", number, repr(error))
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                say("acknowledged", number, ack.seq, tries, int(bool(ack.duplicate)))
                break
        await asyncio.sleep(PAUSE_SECONDS)


async def consume(js: JetStreamContext, stream: str) -> None:
    """Take messages in batches, and settle each with a double acknowledgement."""
    subscription = await js.pull_subscribe_bind("C", stream=stream)
    while True:
        say("asked")
        try:
            messages = await subscription.fetch(BATCH, timeout=1)
        except TimeoutError:
            continue  # there was none
        except Exception as error:
            say("note", repr(error))
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        for message in messages:
            about, number = message.metadata, message.data.decode()
            say("delivered", number, about.sequence.stream, about.num_delivered)
            try:
                await message.ack_sync(timeout=ANSWER_SECONDS_MAX)
                say("settled", number)
            except Exception as error:
                say("unsettled", number, repr(error))


async def main(stream: str, urls: str) -> None:
    """Publish until a line comes, and consume until there will be no more of them."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    nc = await connect(urls)
    js, stop = nc.jetstream(), asyncio.Event()
    work = [publish(js, stream, stop), consume(js, stream)]
    tasks = [asyncio.create_task(one) for one in work]
    await lines.readline()
    stop.set()
    await lines.read()
    for task in tasks:
        task.cancel()
    await nc.close()


asyncio.run(main(*sys.argv[1:]))
