"""Beginning consumers: new ones at the place that their policy says, old ones where they were."""

import base64
from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.consumer.acks import AckService
from slipstream.engine.consumer.config import AT_CREATION, ConsumerConfig
from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.consumer.doubt import doubt_consumer, trust_consumer
from slipstream.engine.consumer.life import ConsumerLife, discard_consumer
from slipstream.engine.consumer.pull import PullDelivery
from slipstream.engine.consumer.push import PushDelivery
from slipstream.engine.consumer.state import apply_state, encode_state
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.json_body import convert
from slipstream.engine.protocol.options import kept_metadata
from slipstream.engine.stream.retention import drop_settled
from slipstream.errors import DiskFullError, Error, StorageError
from slipstream.log.file_log import FileLog
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.log.stream_store import ConsumerStore
from slipstream.model.error_codes import ErrorCode
from slipstream.model.times import text_ns

if TYPE_CHECKING:
    from slipstream.engine.stream.stream import Stream


def begin_consumer(stream: "Stream", name: str, config: ConsumerConfig) -> Consumer:
    """A new consumer; the configuration was checked. Raises `ApiError`."""
    store: ConsumerStore | None = None
    if stream.store is not None and not config.mem_storage and not config.direct:
        is_ephemeral = not config.durable_name and config.num_replicas <= 1
        store = stream.store.consumer(name, is_ephemeral)
    consumer = Consumer(stream, name, config, stream.clock.now, store)
    set_start(consumer)
    consumer.life = ConsumerLife(consumer)
    if store is not None:
        try:
            if name in stream.doubtful:  # nobody could read that one; it is created anew
                discard_consumer(stream, stream.store.consumer(name))
            elif not stream.js.state.log.is_removed(store.path):
                store.check_free()
            consumer.life.keep_new()
        except (StorageError, OSError) as error:
            raise ApiError(ErrorCode.CONSUMER_STORE_FAILED, err=str(error)) from error
    _connect(consumer)
    trust_consumer(stream, name)
    if not config.direct:
        stream.js.advisories.consumer_action("CREATED", "create", stream.name, name)
    return consumer


def set_start(consumer: Consumer) -> None:
    """Place a consumer as its deliver policy says
    (docs/protocol/consumers.md#where-delivery-begins)."""
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
        start = log.seq_at(text_ns(config.opt_start_time))
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


def _connect(consumer: Consumer) -> None:
    """Give a consumer its acknowledgement subject and its way of delivering."""
    stream = consumer.stream
    consumer.paused_until = 0
    if consumer.config.pause_until:
        until = text_ns(consumer.config.pause_until)
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


def place_consumer(
    stream: "Stream", name: str, config: ConsumerConfig, created: int, position: bytes
) -> None:
    """A consumer in memory that goes on at `position`. Raises `CorruptionError`."""
    consumer = Consumer(stream, name, config, created, None)
    apply_state(consumer, position)
    _fit(consumer)
    consumer.life = ConsumerLife(consumer)
    _connect(consumer)
    _hold(consumer)


def _hold(consumer: Consumer) -> None:
    """Whether the filters still match what is out is not known."""
    if consumer.letters is not None:
        consumer.letters.take_exhausted()
    if consumer.pending.size:
        consumer.has_outstanding = True
        consumer.stream.with_outstanding[consumer] = None
        consumer.stream.refiltered[consumer] = None


def restore_consumers(stream: "Stream") -> None:
    """Start again every consumer that the stream's directory has."""
    if stream.store is None:
        return
    all_known = True
    consumers: dict[str, Consumer] = {}
    for name, store in list(stream.store.consumers()):
        if name in consumers:  # an ephemeral one of an earlier life of the name
            store.drop()
            continue
        try:
            meta = msgspec.json.decode(store.meta.load())
            config: ConsumerConfig = convert(meta["config"], ConsumerConfig, ConsumerConfig.words)
            consumer = Consumer(stream, name, config, meta["created"], store)
            consumer.origin = base64.b64decode(meta.get("origin", ""))
        except Exception as error:  # whatever it is, the others are served
            if store.is_ephemeral:  # it was never said to be durable
                store.drop()
            else:
                doubt_consumer(stream, name, str(error), is_lost=True)
            continue
        all_known = _place(consumer, store) and all_known
        consumers[name] = consumer
    _lose_what_was_delivered(stream, list(consumers.values()))
    for name, consumer in consumers.items():
        store = consumer.store
        _fit(consumer)
        consumer.life = ConsumerLife(consumer)
        if consumer.unsaved:
            consumer.life.changed()
        _connect(consumer)
        if store.meta.doubt:
            consumer.life.restored_at = (consumer.floor_stream_seq, consumer.next_seq)
            doubt_consumer(stream, name, store.meta.doubt, is_lost=False)
        elif not store.is_ephemeral:
            stream.js.check_copies(store.meta, f"consumer '{stream.name} > {name}'")
        _hold(consumer)
    if all_known and stream.config.retention != "limits":
        drop_settled(stream)


def _place(consumer: Consumer, store: ConsumerStore) -> bool:
    """Put a consumer where it was. False if that is not known: it is put where it misses nothing,
    and may deliver again."""
    stream = consumer.stream
    name = f"JetStream consumer '{stream.account.name} > {stream.name} > {consumer.name}'"
    try:
        apply_state(consumer, store.state.load())
    except (Error, OSError) as error:
        is_begun = store.state.is_begun()  # else it never got as far as saving a position
        _begin_anew(consumer)
        if is_begun:
            if stream.config.retention != "limits":  # what the stream holds may all be for it
                consumer.next_seq = stream.log.first_seq
            stream.js.problem(f"{name} begins anew, its position could not be read: {error}")
        return not is_begun
    if store.state.damaged:
        stream.js.problem(
            f"{name} has a damaged copy of its position, {store.state.damaged}; "
            "the other one is whole and as new"
        )
    elif store.state.torn:
        stream.engine.on_problem(
            f"{name} goes on from the one copy of its position that is whole; "
            f"{store.state.torn}, as a power failure leaves one, and may have been newer: "
            "what was acknowledged in the last second may be delivered again"
        )
    return True


def _begin_anew(consumer: Consumer) -> None:
    """Place a consumer as if it had just been created."""
    set_start(consumer)
    if consumer.origin:
        try:
            apply_state(consumer, consumer.origin)
        except Error:
            consumer.next_seq = consumer.log.first_seq
    elif consumer.config.deliver_policy in AT_CREATION:  # of an earlier version
        consumer.next_seq = min(consumer.next_seq, consumer.log.seq_at(consumer.created))


def _lose_what_was_delivered(stream: "Stream", consumers: list[Consumer]) -> None:
    """A message that was delivered was durable. If the log ends before it, the rest was lost.

    Where publishes are acknowledged before they are durable, so are messages delivered: there a
    power failure takes both back.
    """
    delivered = [c.delivered_stream_seq for c in consumers if c.delivered_seq]
    last = max((seq for seq in delivered if seq <= SEQUENCE_MAX), default=0)
    log = stream.log
    if stream.ack_at_once or last <= log.last_seq or not isinstance(log, FileLog):
        return
    try:
        log.lose_end(last)
        stream.visible_seq = log.durable_seq
    except (OSError, StorageError) as error:
        stream.js.problem(
            f"stream '{stream.account.name} > {stream.name}' ends before message {last}, which was "
            f"delivered, and cannot note that: {error}"
        )


def _save_at_once(consumer: Consumer) -> None:
    """Save a position that was moved back, before other messages get the sequences above it."""
    content = encode_state(consumer)
    try:
        if not _is_in_log(consumer, content):
            consumer.store.state.save(content, sync=True)
    except (Error, OSError) as error:
        consumer.unsaved = True  # it is tried again
        name = f"consumer '{consumer.stream.name} > {consumer.name}'"
        consumer.stream.js.problem(f"the position of {name} could not be saved: {error}")


def _is_in_log(consumer: Consumer, content: bytes) -> bool:
    """Whether a position is durable in the commit log: it has to come after what the log still has
    for its file, which may have no directory yet. Raises `StorageError`."""
    state = consumer.stream.js.state
    if state.log.is_applied():
        return False
    try:
        state.keep_now(consumer.store.state, content)
    except DiskFullError:  # no checkpoint makes room meanwhile
        state.apply_all()
        return False
    return True


def _fit(consumer: Consumer) -> None:
    """The state may be older than the stream: what has gone meanwhile is settled."""
    log = consumer.log
    moves_back = consumer.next_seq > log.last_seq + 1
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
        if moves_back and consumer.store is not None:
            _save_at_once(consumer)
    consumer.config.metadata = kept_metadata(consumer.config.metadata)
    consumer.recount()
    if consumer.stream.config.retention == "workqueue":
        for seq in [s for s in consumer.pending.sequences() if s < log.first_seq]:
            consumer.settle(consumer.pending.find(seq))
