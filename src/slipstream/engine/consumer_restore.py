"""Beginning consumers: new ones at the place that their policy says, old ones where they were."""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.acks import AckService
from slipstream.engine.consumer import Consumer
from slipstream.engine.consumer_checks import parse_time
from slipstream.engine.consumer_config import ENUMS, ConsumerConfig, emit
from slipstream.engine.consumer_life import ConsumerLife, pause_moment
from slipstream.engine.consumer_state import apply_state, encode_state
from slipstream.engine.errors import ApiError
from slipstream.engine.json_body import convert
from slipstream.engine.pull import PullDelivery
from slipstream.engine.push import PushDelivery
from slipstream.engine.retention import drop_settled
from slipstream.engine.rfc3339 import time_ns
from slipstream.errors import Error, StorageError
from slipstream.log.stream_store import ConsumerStore

if TYPE_CHECKING:
    from slipstream.engine.stream import Stream

# Deliver policies whose first message depends on when the consumer was made.
_AT_CREATION = ("new", "last", "last_per_subject", "by_start_time")


def begin_consumer(stream: "Stream", name: str, config: ConsumerConfig) -> Consumer:
    """A new consumer; the configuration was checked. Raises `ApiError`."""
    store: Any = None
    if stream.store is not None and not config.mem_storage:
        store = stream.store.consumer(name)
    consumer = Consumer(stream, name, config, stream.clock.now, store)
    set_start(consumer)
    if store is not None:
        try:
            _create(store, consumer)
        except (StorageError, OSError) as error:
            raise ApiError(10104, err=str(error)) from error
    _connect(consumer)
    stream.js.advisories.consumer_action("CREATED", "create", stream.name, name)
    return consumer


def set_start(consumer: Consumer) -> None:
    """Place a consumer as its deliver policy says (spec consumers.md section 4)."""
    config = consumer.config
    log = consumer.log
    start = log.first_seq
    policy = config.deliver_policy
    if policy == "last":
        last = max((log.last_of(f) for f in config.filters or (b">",)), default=0)
        start = last or log.first_seq
    elif policy == "new":
        start = log.last_seq + 1
    elif policy == "by_start_sequence":
        start = max(config.opt_start_seq, log.first_seq)
    elif policy == "by_start_time":
        start = log.seq_at(time_ns(parse_time(config.opt_start_time)))
    elif policy == "last_per_subject":
        consumer.initial = log.last_per_subject(config.filters)
        start = log.last_seq + 1
    consumer.next_seq = start
    before = start - 1
    if consumer.initial:
        before = consumer.initial[0] - 1
    elif policy == "last_per_subject":
        before = log.first_seq - 1
    consumer.delivered_stream_seq = consumer.floor_stream_seq = max(before, 0)
    if config.replay_policy == "original":
        consumer.replay_until = log.last_seq
    consumer.recount()


def _create(store: ConsumerStore, consumer: Consumer) -> None:
    """Make the consumer's files. Raises OSError, `StorageError`.

    Where it begins is kept with them if it could not be told later: what is "new" or "last" when
    the server comes back is not what it was when the consumer was made.
    """
    state = encode_state(consumer) if consumer.config.deliver_policy in _AT_CREATION else b""
    store.create(encode_meta(consumer.config, consumer.created), state)


def encode_meta(config: ConsumerConfig, created: int) -> bytes:
    """What is kept of a consumer beside its state."""
    return msgspec.json.encode({"config": emit(config), "created": created})


def _connect(consumer: Consumer) -> None:
    """Give a consumer its timer, its acknowledgement subject and its way of delivering."""
    stream = consumer.stream
    consumer.life = ConsumerLife(consumer)
    consumer.paused_until = 0
    if consumer.config.pause_until:
        until = pause_moment(consumer.config.pause_until)
        consumer.paused_until = until if until > consumer.clock.now else 0
    if consumer.config.is_push:
        consumer.delivery = PushDelivery(consumer)
    else:
        consumer.delivery = PullDelivery(consumer)
    consumer.delivery.acks = AckService(consumer)
    stream.add_consumer(consumer)
    consumer.delivery.begin()
    consumer.life.tick()
    consumer.wake()


def restore_consumers(stream: "Stream") -> None:
    """Start again every consumer that the stream's directory has."""
    if stream.store is None:
        return
    all_known = True
    for name, store in list(stream.store.consumers()):
        try:
            meta = msgspec.json.decode(store.meta.load())
            config: ConsumerConfig = convert(meta["config"], ConsumerConfig, ENUMS)
            consumer = Consumer(stream, name, config, meta["created"], store)
        except Exception as error:  # whatever it is, the others are served
            stream.js.problem(
                f"JetStream consumer '{stream.account.name} > {stream.name} > {name}' "
                f"could not be recovered: {error}"
            )
            all_known = False
            continue
        try:
            apply_state(consumer, store.state.load())
        except (Error, OSError) as error:
            set_start(consumer)
            if store.state.is_begun():  # else it never got as far as saving a position
                if consumer.retains:  # what the stream holds may all be for it
                    consumer.next_seq = stream.log.first_seq
                all_known = False
                stream.js.problem(
                    f"JetStream consumer '{stream.account.name} > {stream.name} > {name}' begins "
                    f"anew, its position could not be read: {error}"
                )
        _fit(consumer)
        _connect(consumer)
        if consumer.pending.size:  # whether its filters still match all of these is not known
            consumer.holds = True
            stream.holding.append(consumer)
            stream.strays.append(consumer)
    if all_known and stream.config.retention != "limits":
        drop_settled(stream)


def _fit(consumer: Consumer) -> None:
    """The state may be older than the stream: what has gone meanwhile is settled."""
    log = consumer.log
    consumer.next_seq = max(consumer.next_seq, log.first_seq)
    policy = consumer.config.deliver_policy
    if consumer.delivered_seq or policy != "by_start_sequence":  # that may lie in the future
        # Sequences above were given out before a crash, to messages that were not durable.
        last = log.last_seq
        consumer.next_seq = min(consumer.next_seq, last + 1)
        consumer.delivered_stream_seq = min(consumer.delivered_stream_seq, last)
        consumer.floor_stream_seq = min(consumer.floor_stream_seq, last)
        for seq in [s for s in consumer.pending.sequences() if s > last]:
            consumer.settle(consumer.pending.find(seq))
        consumer.initial = [seq for seq in consumer.initial if seq <= last]
    consumer.config.metadata = {
        k: v for k, v in consumer.config.metadata.items() if k != "_nats.req.level"
    }
    consumer.recount()
    if consumer.stream.config.retention == "workqueue":
        for seq in [s for s in consumer.pending.sequences() if s < log.first_seq]:
            consumer.settle(consumer.pending.find(seq))
