"""How consumers look in responses (docs/protocol/consumers.md#info)."""

from typing import TYPE_CHECKING

from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.protocol.group import cluster_info
from slipstream.engine.protocol.options import shown_metadata
from slipstream.model.times import time_text

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import ConsumerInfo, SequenceInfo

LAST = 2**64 - 1  # no sequence is higher


def consumer_info(consumer: Consumer, with_version: bool = True) -> "ConsumerInfo":
    """ConsumerInfo; where the stream has failed, nothing beyond its last durable message."""
    consumer.catch_up()
    last = consumer.stream.readable_seq if consumer.stream.failed else LAST
    delivered_seq = min(consumer.delivered_stream_seq, last)
    floor_seq = min(consumer.floor_stream_seq, last)
    config = consumer.config.emit()
    if with_version:
        config["metadata"] = shown_metadata(config["metadata"])
    info: ConsumerInfo = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": time_text(consumer.created),
        "config": config,
        "delivered": _place(consumer.delivered_seq, delivered_seq, consumer.delivered_at),
        "ack_floor": _place(consumer.floor_seq, floor_seq, consumer.acked_at),
        "num_ack_pending": len(consumer.pending),
        "num_redelivered": 0 if consumer.config.max_deliver == 1 else len(consumer.redelivered),
        "num_waiting": 0,
        "num_pending": consumer.num_pending,
    }
    engine = consumer.stream.js.engine
    if engine.group is not None:
        info["cluster"] = cluster_info(engine.group, engine.started, consumer.life.is_kept)
    delivery = consumer.delivery
    if isinstance(delivery, PullDelivery):
        delivery.drop_uninterested()
        info["num_waiting"] = delivery.num_waiting
        if delivery.groups is not None:
            info["priority_groups"] = delivery.groups.shown()
    elif isinstance(delivery, PushDelivery) and delivery.active:
        info["push_bound"] = True
    if consumer.paused_until:
        info["paused"] = True
        info["pause_remaining"] = consumer.paused_until - consumer.clock.now
    info["ts"] = time_text(consumer.clock.now)
    return info


def _place(consumer_seq: int, stream_seq: int, at: int) -> "SequenceInfo":
    place: SequenceInfo = {"consumer_seq": consumer_seq, "stream_seq": stream_seq}
    if at:
        place["last_active"] = time_text(at)
    return place
