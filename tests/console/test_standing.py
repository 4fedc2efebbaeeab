"""How consumers stand, and what of it is worth attention."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slipstream.client.jetstream import ConsumerConfig, ConsumerInfo, StreamConfig, StreamInfo
from slipstream.console.pages.overview import attention
from slipstream.console.sampler import Look
from slipstream.console.standing import standing
from slipstream.model.infos import (
    AccountInfo,
    AccountLimits,
    ClusterInfo,
    LostData,
    PeerInfo,
    SequenceInfo,
    StreamSourceInfo,
    StreamState,
)

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def consumer(config: dict[str, Any] | None = None, **fields: Any) -> ConsumerInfo:
    """An info of a consumer."""
    made = ConsumerConfig(durable_name="c", **(config or {}))
    return ConsumerInfo(stream_name="S", name="c", config=made, ts=NOW, **fields)


def delivered(seconds_ago: float) -> SequenceInfo:
    """Something was delivered then."""
    return SequenceInfo(last_active=NOW - timedelta(seconds=seconds_ago))


PUSH = {"deliver_subject": "to"}


@pytest.mark.parametrize(
    ("info", "word", "level"),
    [
        (consumer(num_waiting=1, num_pending=5), "delivers", "good"),
        (consumer(num_pending=5), "nobody asks", "warn"),
        (consumer(num_pending=5, delivered=delivered(3600)), "nobody asks", "warn"),
        (consumer(num_pending=5, delivered=delivered(0)), "delivers", "good"),
        (consumer(), "nobody asks", ""),
        (consumer(PUSH, num_pending=5), "nobody listens", "bad"),
        (consumer(PUSH, push_bound=True, num_pending=5), "delivers", "good"),
        (consumer({"max_ack_pending": 2}, num_ack_pending=2), "waits for acks", "bad"),
        (consumer(paused=True, num_ack_pending=2), "paused", "warn"),
    ],
)
def test_a_consumer_stands_in_a_word(info: ConsumerInfo, word: str, level: str) -> None:
    assert standing(info) == (word, level)


def stream(config: dict[str, Any], **fields: Any) -> StreamInfo:
    """An info of a stream."""
    state = fields.pop("state", StreamState())
    return StreamInfo(config=StreamConfig(name="S", **config), state=state, **fields)


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (Look(consumers=[consumer(num_pending=1)]), "Nobody asks consumer c of S for messages; "
         "1 message waits."),
        (Look(consumers=[consumer(PUSH, num_pending=2)]), "Nobody listens to consumer c of S; "
         "2 messages wait."),
        (Look(consumers=[consumer(num_redelivered=1)]), "1 message more than once"),
        (Look(consumers=[consumer(paused=True, pause_remaining=60.0)]), "paused for another 1m0s"),
        (Look(streams=[stream({}, state=StreamState(lost=LostData(msgs=[1, 2])))]),
         "has lost 2 messages"),
        (Look(streams=[stream({"max_msgs": 100, "discard": "new"},
                              state=StreamState(messages=95))]), "95% full"),
        (Look(streams=[stream({}, mirror=StreamSourceInfo(name="M", error={}))]), None),
        (Look(streams=[stream({}, mirror=StreamSourceInfo(
            name="M", error={"description": "no route"}))]), "cannot copy from M: no route"),
        (Look(account=AccountInfo(storage=95, limits=AccountLimits(max_storage=100))),
         "File storage: 95 B of 100 B are used."),
        (Look(connections=[{"name": "slow one", "pending_bytes": 2**22}]), "slow one is slow"),
        (Look(streams=[stream({"max_msgs": 100}, state=StreamState(messages=100))]), None),
        (Look(streams=[stream({}, cluster=ClusterInfo(leader="n0", replicas=[
            PeerInfo(name="n1", current=True)]))]), None),
        (Look(streams=[stream({}, cluster=ClusterInfo(leader="n0", replicas=[
            PeerInfo(name="n1", lag=7)]))] * 2), "n1 is behind by 7 operations"),
        (Look(streams=[stream({}, cluster=ClusterInfo(leader="n0", replicas=[
            PeerInfo(name="n1", offline=True)]))] * 2), "n1 is away; until it is back"),
        (Look(streams=[stream({}, cluster=ClusterInfo(leader="n0", replicas=[
            PeerInfo(name="n1", offline=True), PeerInfo(name="n2", current=True)]))]),
         "n1 is away; copies of streams are missing there"),
        (Look(streams=[stream({}, cluster=ClusterInfo(leader="n0", replicas=[
            PeerInfo(name="n1")]))]), "n1 is coming back"),
        (Look(consumers=[consumer()], connections=[{"cid": 1}]), None),
    ],
)  # fmt: skip
def test_what_needs_attention_is_said_once(look: Look, text: str | None) -> None:
    found = attention(look)
    assert len(found) == (0 if text is None else 1)
    for one in found:
        assert text is not None
        assert text in one.text


def test_the_worst_comes_first() -> None:
    look = Look(consumers=[consumer(num_pending=1), consumer(PUSH, num_pending=1)])
    assert [one.level for one in attention(look)] == ["bad", "warn"]
