"""What docs/client.md names exists, and it names every option, event, error and public call."""

import inspect
import re
from pathlib import Path

import pytest

import slipstream.client
import slipstream.errors
from slipstream.client import (
    Connection,
    ConnectOptions,
    Message,
    Statistics,
    Subscription,
    TelemetryOptions,
    codecs,
    errors,
    events,
    services,
)
from slipstream.client.services import Discovery, Endpoint, Group, Service, ServiceRequest

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
OWNERS = (Connection, Subscription, Message, Service, Group, Endpoint, ServiceRequest, Discovery)
OPTIONS = (ConnectOptions, TelemetryOptions)
PLACES = (*OWNERS, *OPTIONS, Statistics, slipstream.client, services, codecs, slipstream.errors)
WORDS = {"async", "for", "await", "raise", "slipstream", "nc", "subscription", "message", "service"}
WORDS |= {
    "failures",
    "request",
    "logging",
    "getLogger",
    "client",
    "True",
    "False",
    "url",
    "f",
    "T",
    "data",
}
WORDS |= {"services", "server_info", "version_tuple", "ws", "wss", "peername", "sockname", "value"}
WORDS |= {
    "subject",
    "timeout",
    "ssl_object",
    "disconnected",
    "n",
    "urls",
    "ServiceError",
    "publish",
}

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not beside the tests")


def page() -> str:
    return PAGE.read_text() if PAGE.exists() else ""


def last_column() -> set[str]:
    """The words of code in the cells under "here"."""
    table = page().partition("## Names in other")[2].partition("Not here")[0]
    cells = re.findall(r"\| ([^|]+) \|$", table, re.MULTILINE)
    code = " ".join(piece for cell in cells[1:] for piece in re.findall(r"`([^`]+)`", cell))
    return set(re.findall(r"[A-Za-z_]\w*", code)) - WORDS


@pytest.mark.parametrize("name", sorted(last_column()))
def test_a_name_of_the_table_exists(name: str) -> None:
    parameters = {
        parameter
        for owner in OWNERS
        for _, function in inspect.getmembers(owner, callable)
        if inspect.isfunction(function)
        for parameter in inspect.signature(function).parameters
    }
    options = set(ConnectOptions.__struct_fields__)
    known = any(hasattr(place, name) for place in PLACES)
    assert known or name in parameters | options | {"connect"}


def test_every_option_is_on_the_page() -> None:
    assert not [n for n in ConnectOptions.__struct_fields__ if not re.search(rf"\b{n}\b", page())]


def test_every_event_is_on_the_page() -> None:
    assert not [name for name in events.NAMES if f"`{name}`" not in page() and name != "event"]


def test_every_error_is_on_the_page() -> None:
    kinds = {
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.ClientError)
    }
    assert kinds - set(re.findall(r"\w+Error", page())) <= {"ClientError"}


def test_every_public_call_of_a_connection_is_on_the_page() -> None:
    low = {"requests_pending", "forbid", "report_slow"}
    low |= {
        "report_error",
        "start",
        "give_up",
        "new_id",
        "jetstream",
        "is_closed",
        "is_draining",
    }
    public = {name for name in dir(Connection) if not name.startswith("_")} - low
    assert not sorted(name for name in public if not re.search(rf"\b{name}\b", page()))
