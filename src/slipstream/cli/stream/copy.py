"""`slipstream stream copy --messages`: a second stream with everything that the first holds.

The server does the work: the new stream has the old one as its source until it has caught up.
Sequences and times of storing are the new stream's own; headers tell where a message came from.
"""

import asyncio

from slipstream.cli.progress import count_bar
from slipstream.client.jetstream import Stream, StreamConfig
from slipstream.client.jetstream.context import JetStream
from slipstream.errors import ConfigError
from slipstream.model.configurations import StreamSource

LOOK_SECONDS = 0.1
STALLED_SECONDS = 30.0  # without progress for so long, it is given up


async def copy_messages(js: JetStream, source: Stream, made: StreamConfig) -> None:
    """Make the stream `made` and let it take over all that `source` holds now.

    Raises `ConfigError` when nothing more arrives; the new stream is left as it is then.
    """
    wanted = (await source.info()).state.messages
    sources = [StreamSource(name=source.name)]
    copy = await js.create_stream(made.replace(sources=sources, mirror=None, first_seq=0))
    have, idle = 0, 0.0
    with count_bar("Copying") as bar:
        task = bar.add_task("", total=wanted)
        while have < wanted:
            await asyncio.sleep(LOOK_SECONDS)
            now = (await copy.info()).state.messages
            idle = 0.0 if now > have else idle + LOOK_SECONDS
            have = now
            bar.update(task, completed=have)
            if idle >= STALLED_SECONDS:
                raise ConfigError(
                    f"stream copy: {made.name} has {have:,} of {wanted:,} messages and gets no "
                    f"more; `slipstream stream info {made.name}` shows what holds it up"
                )
    await copy.update(made.replace(sources=[], mirror=None, first_seq=0))
