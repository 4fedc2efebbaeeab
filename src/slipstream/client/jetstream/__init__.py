"""The JetStream half of the client: publish, streams, consumers.

js = nc.jetstream()
stream = await js.create_stream(name="ORDERS", subjects=["orders.>"])
await js.publish("orders.new", b"...")
consumer = await stream.create_consumer(durable_name="billing")
async with consumer.messages() as messages:
    async for message in messages:
        await message.ack()
"""

from slipstream.client.jetstream.batch_publish import AtomicBatch, FastBatch
from slipstream.client.jetstream.consumer import Consumer, PullConsumer
from slipstream.client.jetstream.consumer_config import ConsumerConfig, OrderedConsumerConfig
from slipstream.client.jetstream.context import JetStream
from slipstream.client.jetstream.document import Seconds, Timestamp
from slipstream.client.jetstream.error_codes import ErrorCode
from slipstream.client.jetstream.fetch import MessageBatch
from slipstream.client.jetstream.info import AccountInfo, ConsumerInfo, StreamInfo, StreamState
from slipstream.client.jetstream.message import JetStreamMessage, Metadata
from slipstream.client.jetstream.messages import ConsumeContext, Messages
from slipstream.client.jetstream.ordered import OrderedConsumer
from slipstream.client.jetstream.publish_options import Schedule
from slipstream.client.jetstream.publisher import PubAck
from slipstream.client.jetstream.push import PushConsumer
from slipstream.client.jetstream.stored import StoredMessage
from slipstream.client.jetstream.stream import Stream
from slipstream.client.jetstream.stream_config import (
    ConsumerLimits,
    ExternalStream,
    Placement,
    Republish,
    SourceConsumer,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

__all__ = [
    "AccountInfo",
    "AtomicBatch",
    "ConsumeContext",
    "Consumer",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerLimits",
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
