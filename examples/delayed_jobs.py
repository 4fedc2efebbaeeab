"""The story of jobs that wait: each is published now, and stored for the workers when it is due.

Run ``slipstream serve``, then ``python examples/delayed_jobs.py [url]``.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import slipstream
from slipstream.client.jetstream import JetStream

DUE = {"newsletter": 2.0, "reminder": 1.0, "farewell": 1.5}  # seconds from now


async def later(js: JetStream, job: str, seconds: float) -> None:
    """Have a job done after a while; another one of that name takes its place."""
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    headers = {
        "Nats-Schedule": f"@at {due.isoformat().replace('+00:00', 'Z')}",
        "Nats-Schedule-Target": f"jobs.{job}",
    }
    await js.publish(f"waiting.{job}", job, headers=headers)


async def main(url: str) -> None:
    """Let three jobs wait, call one off, and do the others when they are due."""
    async with await slipstream.connect(url) as nc:
        js = nc.jetstream()
        stream = await js.create_stream(
            name="JOBS", subjects=["waiting.*", "jobs.*"], allow_msg_schedules=True
        )
        workers = await stream.create_consumer(durable_name="workers", filter_subject="jobs.*")
        for job, seconds in DUE.items():
            await later(js, job, seconds)
        await js.purge_stream("JOBS", filter="waiting.farewell")
        print("three jobs wait, and one of them is called off")
        async with workers.messages() as jobs:
            for _ in range(2):  # of the three
                done = await anext(jobs)
                await done.ack_sync()
                print(f"{done.data.decode()}, scheduled as {done.headers['Nats-Scheduler']}")
        left = (await stream.info(subjects_filter="waiting.*")).state.subjects
        print(f"{len(left)} jobs wait")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222"))
