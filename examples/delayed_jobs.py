"""The story of delayed jobs: a stream publishes them when their time has come, once.

Run ``slipstream serve``, then ``python examples/delayed_jobs.py [url]``. Needs a server of API
level 2 (nats-server 2.12).
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import slipstream
from slipstream.client.jetstream import Schedule


async def main(url: str) -> None:
    """Plan three reminders, take one back, and do the others when they are due."""
    async with slipstream.connect(url) as nc:
        js = nc.jetstream()
        jobs = await js.create_stream(
            name="JOBS", subjects=["plan.*", "jobs.>"], allow_msg_schedules=True
        )
        worker = await jobs.create_consumer(durable_name="worker", filter_subject="jobs.>")
        now = datetime.now(UTC)
        for name, delay in (("late", 3), ("early", 1), ("never", 2)):
            plan = Schedule(at=now + timedelta(seconds=delay), target=f"jobs.{name}")
            await js.publish(f"plan.{name}", f"remind {name}", schedule=plan)
        await jobs.purge(filter="plan.never")  # a plan is a message: without it nothing is due
        print(f"{(await jobs.info()).state.messages} plans are stored")

        for _ in range(2):
            message = await worker.next(timeout=30)
            await message.ack_sync()
            early = datetime.now(UTC) < now + timedelta(seconds=1)
            print(f"{message.subject}: {message.data.decode()}{' (too early)' if early else ''}")
        # A plan that was carried out is gone; what it produced stays until it is removed.
        left = [subject async for subject, _ in jobs.subjects("plan.>")]
        print(f"plans that are left: {len(left)}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
