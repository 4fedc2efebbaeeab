"""What holds in the engine after every turn, whatever has happened.

These checks look at everything, so only the simulator makes them.
"""

from slipstream.engine.consumer.consumer import Consumer
from slipstream.engine.engine import Engine
from slipstream.engine.stream.stream import Stream


def check_invariants(engine: Engine) -> None:
    """Raises AssertionError with what does not hold."""
    for account in engine.accounts.values():
        if account.jetstream is None:
            continue
        for stream in account.jetstream.streams.values():
            _check_stream(stream)
            for consumer in stream.consumers.values():
                _check_consumer(consumer)


def _check_stream(stream: Stream) -> None:
    log = stream.log
    assert log.durable_seq <= log.last_seq, "durable messages are a prefix of those stored"
    assert stream.visible_seq <= log.last_seq, "what is visible was stored"
    if not stream.ack_at_once:
        assert stream.visible_seq <= log.durable_seq, "what is visible is durable"
    assert log.first_seq <= log.last_seq + 1, "the front does not pass the end"
    assert log.messages == sum(block.live for block in log.blocks), "live messages are counted once"
    assert log.messages <= log.last_seq - log.first_seq + 1, "each message has a sequence"
    assert 0 <= stream.committed.under_way <= 2, "at most two batches are under way"


def _check_consumer(consumer: Consumer) -> None:
    name = consumer.name
    assert consumer.floor_seq <= consumer.delivered_seq, f"{name}: the ack floor was delivered"
    assert consumer.num_pending >= 0, f"{name}: num_pending counts messages"
    for seq in consumer.pending.sequences():
        assert seq > consumer.floor_stream_seq, f"{name}: {seq} is pending above the ack floor"
        assert seq < consumer.next_seq or seq in consumer.initial, f"{name}: {seq} was delivered"
