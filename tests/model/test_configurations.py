"""The engine's configurations are what the generator makes of their declarations."""

import runpy
from pathlib import Path

import msgspec
import pytest

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.protocol import configurations as made
from slipstream.engine.stream.config import StreamConfig
from slipstream.model import configurations as declared

TOOL = Path(__file__).parents[2] / "tools" / "generate_documents.py"


def test_the_engines_configurations_are_the_ones_that_are_generated() -> None:
    text = Path(str(made.__file__)).read_text()
    assert text == runpy.run_path(str(TOOL))["text"](), "run tools/generate_documents.py"


@pytest.mark.parametrize(
    ("kind", "added", "changed"),
    [
        (StreamConfig, {"pedantic": False}, {}),  # of a request, and no part of the configuration
        (ConsumerConfig, {}, {"ack_policy": "none"}),  # clients say what they want, and explicitly
    ],
)
def test_what_the_engine_changes_of_a_declaration_is_listed_here(
    kind: type[msgspec.Struct], added: dict[str, object], changed: dict[str, object]
) -> None:
    (base,) = kind.__bases__
    own = msgspec.structs.asdict(kind())
    plain = msgspec.structs.asdict(base())
    assert {name: own[name] for name in own.keys() - plain.keys()} == added
    assert {name: own[name] for name in plain if own[name] != plain[name]} == changed
    assert list(own) == [*plain, *added]


def test_a_declared_configuration_is_read_and_shown_by_the_engine_as_it_is() -> None:
    source = declared.StreamSource(
        name="UP",
        opt_start_seq=7,
        subject_transforms=[declared.SubjectTransform(src="a", dest="b")],
        external=declared.ExternalStream(api="$JS.there.API"),
    )
    config = declared.StreamConfig(
        name="S", max_age=1.5, sources=[source], consumer_limits=declared.ConsumerLimits()
    )
    kept = msgspec.convert(config.to_wire(), StreamConfig)
    assert kept.max_age == 1_500_000_000
    shown = declared.StreamConfig.from_wire(kept.emit())
    assert shown.replace(metadata={}) == config
