"""What a consumer tells of single messages: advisories, and metrics of sampled acknowledgements."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer


def advise(
    consumer: "Consumer", event: str, kind: str, seq: int, consumer_seq: int, **extra: Any
) -> None:
    """An advisory about message `seq` (docs/protocol/events.md)."""
    fields: dict[str, Any] = {"consumer_seq": consumer_seq} if consumer_seq else {}
    fields["stream_seq"] = seq
    fields["deliveries"] = consumer.redelivered.get(seq, 1)
    fields.update(extra)
    stream = consumer.stream
    stream.js.advisories.consumer_event(event, kind, stream.name, consumer.name, **fields)


def sample_ack(consumer: "Consumer", seq: int) -> None:
    """Report how long an acknowledgement took, for the share that `sample_freq` asks for."""
    if consumer.sample < 100 and consumer.engine.random.randrange(100) > consumer.sample:
        return
    place = consumer.pending.find(seq)
    consumer.stream.js.advisories.metric_ack(
        consumer.stream.name,
        consumer.name,
        consumer_seq=consumer.pending.consumer_seq(place),
        stream_seq=seq,
        ack_time=consumer.clock.now - consumer.pending.ts(place),
        deliveries=consumer.redelivered.get(seq, 1),
    )
