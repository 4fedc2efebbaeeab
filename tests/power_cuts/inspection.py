"""What clients find on a server that was started after a cut."""

import asyncio

import slipstream
from slipstream.client.jetstream.stream import Stream
from tests.power_cuts.promises import Found, FoundConsumer, FoundStream
from tests.power_cuts.recorded_server import Server
from tests.power_cuts.workload import ACK_WAIT_SECONDS, BUCKET, BUCKET_STREAM, KEYS

FETCHED = 500  # messages at a time
QUIET_SECONDS = ACK_WAIT_SECONDS + 0.3  # after which nothing is delivered again


async def look(server: Server) -> Found:
    """Everything, first without changing anything, then what consumers have yet to deliver."""
    found = Found(health=await asyncio.to_thread(server.health))
    async with await slipstream.connect(server.url) as connection:
        js = connection.jetstream()
        infos = [info async for info in js.streams()]
        for info in infos:
            name = info.config.name
            there = FoundStream(info.config.description, info.state.last_seq)
            found.streams[name] = there
            stream = await js.stream(name)
            if info.state.messages:
                async for message in stream.get_batch():
                    there.messages[bytes(message.data)] = message.sequence, message.subject
        await _look_at_keys(js, found)
        deliveries = []
        for name in found.streams:
            stream = await js.stream(name)
            async for one in stream.consumers():
                there_is = FoundConsumer(one.config.description)
                found.consumers[name, one.name] = there_is
                deliveries.append(_deliver(stream, one.name, there_is))
        await asyncio.gather(*deliveries)
        # Reading it all may have found more.
        found.health += await asyncio.to_thread(server.health)
    return found


async def _look_at_keys(js: "slipstream.JetStream", found: Found) -> None:
    if BUCKET_STREAM not in found.streams:
        return
    bucket = await js.key_value(BUCKET)
    for key in KEYS:
        entry = await bucket.entry(key)
        if entry is not None and entry.value is not None:  # else it was deleted
            found.keys[key] = bytes(entry.value).decode()


async def _deliver(stream: Stream, name: str, found: FoundConsumer) -> None:
    consumer = await stream.consumer(name)
    while True:
        batch = await consumer.fetch(FETCHED, timeout=QUIET_SECONDS)
        for message in batch:
            found.bodies.add(bytes(message.data))
            await message.ack()
        if not len(batch):  # the end, unless the machine was too busy to deliver in time
            info = await consumer.info()
            if not info.num_pending and not info.num_ack_pending:
                return
