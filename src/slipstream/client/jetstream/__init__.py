"""The JetStream half of the client: publish, streams, consumers.

js = nc.jetstream()
stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
await js.publish("orders.new", b"...")
consumer = await stream.create_consumer(durable_name="billing")
async with consumer.messages() as messages:
    async for message in messages:
        await message.ack()
"""

from slipstream.client.jetstream.backup import BackupInfo
from slipstream.client.jetstream.batch_publish import AtomicBatch, FastBatch
from slipstream.client.jetstream.consumer import Consumer, PullConsumer
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.dead_letters import DeadLetter
from slipstream.client.jetstream.message import JetStreamMessage, Metadata
from slipstream.client.jetstream.messages import ConsumeContext, Messages
from slipstream.client.jetstream.ordered import OrderedConsumer, OrderedConsumerConfig
from slipstream.client.jetstream.publish import PubAck, Schedule
from slipstream.client.jetstream.pull import MessageBatch
from slipstream.client.jetstream.push import PushConsumer
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.client.jetstream.stream import Stream
from slipstream.model.configurations import (
    ConsumerConfig,
    ConsumerLimits,
    ExternalStream,
    Placement,
    Republish,
    SourceConsumer,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from slipstream.model.documents import Seconds
from slipstream.model.error_codes import ErrorCode
from slipstream.model.infos import AccountInfo, ConsumerInfo, StreamInfo, StreamState
from slipstream.model.times import Timestamp

__all__ = [
    "AccountInfo",
    "AtomicBatch",
    "BackupInfo",
    "ConsumeContext",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerLimits",
    "DeadLetter",
    "ErrorCode",
    "ExternalStream",
    "FastBatch",
    "JetStream",
    "JetStreamMessage",
    "MessageBatch",
    "Messages",
    "Metadata",
    "OrderedConsumer",
    "OrderedConsumerConfig",
    "Placement",
    "PubAck",
    "PullConsumer",
    "PushConsumer",
    "Republish",
    "Schedule",
    "Seconds",
    "SourceConsumer",
    "StoredMessage",
    "Stream",
    "StreamConfig",
    "StreamInfo",
    "StreamSource",
    "StreamState",
    "SubjectTransform",
    "Timestamp",
]
