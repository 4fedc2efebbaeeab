"""The fixtures that Slipstream brings to pytest."""

import pytest

import slipstream
import slipstream.sync


def test_jetstream_group_is_three_servers_that_act_as_one(
    jetstream_group: slipstream.Group,
) -> None:
    first, second, third = jetstream_group.urls
    with slipstream.sync.connect(first) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=3)
    with slipstream.sync.connect(second) as nc:
        assert nc.jetstream().publish("s", b"x").sequence == 1
    jetstream_group.hand_over()
    with slipstream.sync.connect(third) as nc:
        assert nc.jetstream().stream("S").get_message(1).data == b"x"


@pytest.mark.parametrize("jetstream_group_size", [2])
def test_jetstream_group_has_as_many_servers_as_a_test_says(
    jetstream_group: slipstream.Group,
) -> None:
    assert jetstream_group.names == ["n1", "n2"]
    with slipstream.sync.connect(jetstream_group.urls[1]) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"], num_replicas=2)
        assert nc.jetstream().publish("s", b"x").sequence == 1
