"""Every name that docs/client-jetstream.md gives for one of another language exists here."""

import builtins
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from slipstream.client import connection, errors, jetstream
from slipstream.client.jetstream import errors as jetstream_errors
from slipstream.client.jetstream.api import Api
from slipstream.client.jetstream.publish import PublishOptions
from slipstream.client.jetstream.pull import GroupOptions, PullOptions

PAGE = Path(__file__).parents[3] / "docs" / "client-jetstream.md"
CHAPTER = "## Names in other languages"
WHO: dict[str, tuple[Any, ...]] = {
    "nc": (connection.Connection,),
    "js": (jetstream.JetStream,),
    "js.api": (Api,),
    "stream": (jetstream.Stream,),
    "found": (jetstream.StoredMessage,),
    "consumer": (jetstream.PullConsumer,),
    "push": (jetstream.PushConsumer,),
    "ordered": (jetstream.OrderedConsumer,),
    "messages": (jetstream.Messages,),
    "consuming": (jetstream.ConsumeContext,),
    "batch": (jetstream.MessageBatch,),
    "message": (jetstream.JetStreamMessage,),
    "metadata": (jetstream.Metadata,),
    "ack": (jetstream.PubAck,),
    "pulling": (jetstream.PullConsumer.messages, jetstream.PullConsumer.consume),
}
MODULES = (jetstream, jetstream_errors, errors, builtins)
_SPAN = re.compile(r"`([^`]+)`")
_CALL = re.compile(r"([\w.]+)(?:\((.*)\))?")


def spans() -> list[str]:
    """What stands in backticks in the last columns."""
    chapter = PAGE.read_text().partition(CHAPTER)[2]
    rows = [line for line in chapter.splitlines() if line.startswith("|")]
    found = [span for row in rows for span in _SPAN.findall(row.rstrip("| ").rpartition(" | ")[2])]
    return list(dict.fromkeys(found))


def things_named(name: str) -> tuple[Any, ...]:
    """What `name` stands for; raises AttributeError if that is nothing."""
    if name in WHO:
        return WHO[name]
    owner, _, attribute = name.rpartition(".")
    if owner:
        return tuple(attribute_of(thing, attribute) for thing in things_named(owner))
    for module in MODULES:
        if hasattr(module, name):
            return (getattr(module, name),)
    raise AttributeError(name)


def attribute_of(thing: Any, name: str) -> Any:
    """`thing.name`, of a class also what its objects get when they are made."""
    if not hasattr(thing, name) and inspect.isclass(thing):
        own = [kind for kind in thing.__mro__ if kind.__module__.startswith("slipstream.")]
        if any(re.search(rf"self\.{name}\b", inspect.getsource(kind)) for kind in own):
            return None
    return getattr(thing, name)


def keywords_of(thing: Any) -> set[str]:
    """The keywords that a call takes, those of its `**options` included."""
    known = set()
    for parameter in inspect.signature(thing).parameters.values():
        known.add(parameter.name)
        for options in (PublishOptions, PullOptions, GroupOptions):
            if options.__name__ in str(parameter.annotation):
                known |= set(options.__annotations__)
    return known


def test_there_is_something_to_look_up() -> None:
    assert len(spans()) > 200


@pytest.mark.parametrize("span", spans())
def test_a_name_exists_and_takes_these_keywords(span: str) -> None:
    call = _CALL.fullmatch(span)
    assert call, f"{span!r} is not a name, nor a call with keywords"
    name, arguments = call.groups()
    for thing in things_named(name):
        for keyword in filter(None, (arguments or "").split(", ")):
            assert keyword.endswith("="), keyword
            if name == "nc.jetstream":
                assert keyword[:-1] in keywords_of(jetstream.JetStream)
            else:
                assert keyword[:-1] in keywords_of(thing)
