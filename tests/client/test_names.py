"""The names that docs/client-data.md gives for those of other languages exist."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import slipstream.sync
from slipstream.client import codecs, kv, object_store, telemetry
from slipstream.client.arrow.scan import Scan
from slipstream.client.jetstream import JetStream, JetStreamMessage, PullConsumer, Stream
from slipstream.client.kv import errors as kv_errors
from slipstream.client.object_store import errors as object_errors

PAGE = Path(__file__).parents[2] / "docs" / "client-data.md"
OBJECTS: dict[str, type] = {
    "consumer": PullConsumer,
    "entry": kv.KeyValueEntry,
    "js": JetStream,
    "kv": kv.KeyValue,
    "message": JetStreamMessage,
    "nc": slipstream.Connection,
    "reader": object_store.ObjectReader,
    "scan": Scan,
    "store": object_store.ObjectStore,
    "stream": Stream,
    "watch": kv.Watch,
}
MODULES = (kv, object_store, kv_errors, object_errors, codecs, telemetry, slipstream)
SYNTAX = {"async for", "type=", "ttl=", "delete", "put", "slipstream.sync"}


def first_column() -> list[str]:
    """What is named in the cells under "here", with ``.b`` after ``A.a`` told out as ``A.b``."""
    text = PAGE.read_text() if PAGE.exists() else ""
    cells = re.findall(r"^\| (.+?) \|", text[text.find("## Names in other") :], re.MULTILINE)
    found = []
    for cell in cells:
        owner = ""
        for name in re.findall(r"`([^`]+)`", cell):
            if name.startswith("."):
                name = owner + name
            owner = name.partition(".")[0]
            if name not in SYNTAX:
                found.append(name)
    return found


def thing(name: str) -> Any:
    """What a name without its parameter stands for; AttributeError if it is not there."""
    owner, _, rest = name.partition(".")
    if owner in OBJECTS:
        return attribute(OBJECTS[owner], rest)
    found = next((getattr(module, owner) for module in MODULES if hasattr(module, owner)), None)
    if found is None:
        raise AttributeError(f"no {owner}")
    return attribute(found, rest) if rest else found


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a class, or of its objects alone."""
    if hasattr(owner, name):
        return getattr(owner, name)
    if f"self.{name} = " in inspect.getsource(owner.__init__):
        return None
    raise AttributeError(f"{owner.__name__} has no {name}")


@pytest.mark.parametrize("name", sorted(set(first_column())))
def test_a_name_of_the_page_exists(name: str) -> None:
    call, _, parameter = name.partition("(")
    found = thing(call)
    if parameter:
        wanted = parameter.removesuffix("=)")
        parameters = inspect.signature(found).parameters
        options = {p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD}
        assert wanted in parameters or options


def test_the_page_names_many(request: pytest.FixtureRequest) -> None:
    if not PAGE.exists():
        pytest.skip("the docs are not beside the tests")
    assert len(first_column()) > 120


def test_every_public_call_of_buckets_and_stores_is_on_the_page() -> None:
    named = {name.partition("(")[0] for name in first_column()}
    for owner in ("kv", "store"):
        methods = [n for n in vars(OBJECTS[owner]) if not n.startswith("_")]
        missing = {f"{owner}.{name}" for name in methods} - named
        assert missing <= {f"{owner}.stream_name", "store.bucket"}


def test_the_page_names_every_error() -> None:
    named = {name.partition(".")[0] for name in first_column()}
    for module in (kv_errors, object_errors):
        errors = {n for n, e in vars(module).items() if inspect.isclass(e)}
        assert errors - named <= {"Error", "KeyValueError", "ObjectStoreError"}
