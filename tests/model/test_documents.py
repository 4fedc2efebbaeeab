"""The engine's configurations and infos are what the generator makes of their declarations."""

import runpy
from pathlib import Path

import msgspec
import pytest

from slipstream.engine.consumer.config import ConsumerConfig
from slipstream.engine.sourcing.feed import ConsumerAnswer
from slipstream.engine.stream.config import StreamConfig
from slipstream.model import configurations as declared
from slipstream.model.infos import ConsumerInfo

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "generate_documents.py"


def test_the_engines_documents_are_the_ones_that_are_generated() -> None:
    tool = runpy.run_path(str(TOOL))
    found = {name: (Path(tool["ENGINE"]) / name).read_text() for name in tool["MODULES"]}
    assert found == {name: text() for name, text in tool["MODULES"].items()}, f"run {TOOL.name}"


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


@pytest.mark.parametrize(
    ("kind", "pages"),
    [
        (declared.StreamConfig, ["protocol/streams.md"]),
        (declared.ConsumerConfig, ["protocol/consumers.md", "dead-letters.md"]),
    ],
)
def test_each_declared_field_is_on_a_page(kind: type[msgspec.Struct], pages: list[str]) -> None:
    text = "".join((ROOT / "docs" / page).read_text() for page in pages)
    names = set(kind.__struct_fields__) - {"extra"}
    assert not {name for name in names if f"`{name}`" not in text}


def test_what_a_mirror_reads_of_its_consumer_is_declared() -> None:
    read = {field.name: field.type for field in msgspec.structs.fields(ConsumerAnswer)}
    assert read.keys() - {"error"} <= set(ConsumerInfo.__struct_fields__)
    for field in msgspec.structs.fields(ConsumerInfo):
        if field.name in ("config", "delivered"):
            names = set(read[field.name].__struct_fields__)
            assert names <= set(field.type.__struct_fields__)
