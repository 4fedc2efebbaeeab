"""The story of a work queue: so many jobs a second, and those that cannot be done are set aside.

What fails three times, or makes no sense, becomes a dead letter; once somebody has looked, it is
sent again. Run ``slipstream serve``, then ``python examples/rate_limited_queue.py [url]``. Dead
letters are Slipstream's own: on another server creating the consumer says so.
"""

import asyncio
import sys

import slipstream
from slipstream.client.jetstream import JetStreamMessage, PullConsumer

JOBS_PER_SECOND = 20
ATTEMPTS = 3


class Pace:
    """Lets `rate` things happen in a second, evenly, however many workers ask."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._next = 0.0

    async def wait(self) -> None:
        """Return when it is one's turn."""
        now = asyncio.get_running_loop().time()
        self._next = max(self._next + self._interval, now)
        await asyncio.sleep(self._next - now)


async def work(message: JetStreamMessage, is_mail_down: bool) -> None:
    """Do one job; each ends in exactly one answer to the server."""
    address = message.data.decode()
    if "@" not in address:
        await message.term_sync(f"{address!r} is no address")
    elif is_mail_down and address.endswith("@slow.example"):
        await message.nak_sync()  # comes again, ATTEMPTS times in all
    else:
        await message.ack_sync()


async def drain(consumer: PullConsumer, pace: Pace, is_mail_down: bool) -> None:
    """Two workers, one pace, until nothing has come for a while."""

    async def worker() -> None:
        while batch := await consumer.fetch(1, timeout=1):
            await pace.wait()
            for message in batch:
                await work(message, is_mail_down)

    await asyncio.gather(worker(), worker())


async def main(url: str) -> None:
    """Send mails, look at those that could not be sent, and send them again."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        await js.create_stream(name="DEAD", subjects=["dead.>"])
        queue = await js.create_stream(name="MAILS", subjects=["mails"], retention="workqueue")
        consumer = await queue.create_consumer(
            durable_name="sender",
            max_deliver=ATTEMPTS,
            max_ack_pending=10,
            dead_letter="dead.mails",
        )
        for number in range(20):
            await js.publish("mails", f"user{number}@good.example")
        for address in ("anna@slow.example", "nobody"):
            await js.publish("mails", address)

        pace = Pace(JOBS_PER_SECOND)
        begin = asyncio.get_running_loop().time()
        await drain(consumer, pace, is_mail_down=True)
        assert asyncio.get_running_loop().time() - begin > 20 / JOBS_PER_SECOND
        left = (await queue.info()).state.messages
        print(f"{left} mails are left in the queue")

        letters = [letter async for letter in consumer.dead_letters()]
        letters.sort(key=lambda letter: letter.from_sequence)
        for letter in letters:
            print(f"{letter.data.decode()}: {letter.reason}")
            if letter.cause == "max_deliver":  # the other one would fail again
                await consumer.resend(letter)
        await drain(consumer, pace, is_mail_down=False)
        remain = [letter.data.decode() async for letter in consumer.dead_letters()]
        print(f"dead letters that remain: {', '.join(remain)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
