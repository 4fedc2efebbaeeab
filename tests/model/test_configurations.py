"""The server's and the client's configurations have the same fields."""

import msgspec
import pytest

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.stream import config
from slipstream.model import configurations as model

# Not of the configuration: what a request asks of the server, and what the client does not know.
ASIDE = {"pedantic", "extra"}
PAIRS: list[tuple[type[msgspec.Struct], type[msgspec.Struct]]] = [
    (config.StreamConfig, model.StreamConfig),
    (config.StreamSource, model.StreamSource),
    (config.SubjectTransform, model.SubjectTransform),
    (config.ExternalStream, model.ExternalStream),
    (config.UpstreamConsumer, model.SourceConsumer),
    (config.Republish, model.Republish),
    (config.Placement, model.Placement),
    (config.ConsumerLimits, model.ConsumerLimits),
    (ConsumerConfig, model.ConsumerConfig),
]


@pytest.mark.parametrize(("served", "asked"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_one_side_names_the_other_knows(
    served: type[msgspec.Struct], asked: type[msgspec.Struct]
) -> None:
    assert set(served.__struct_fields__) - ASIDE == set(asked.__struct_fields__) - ASIDE
