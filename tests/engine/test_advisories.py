"""What JetStream tells of itself, to whoever listens (docs/protocol/events.md)."""

import json

from slipstream.engine.protocol.options import EngineOptions
from slipstream.testing.driver import Client, Driver, Message

ADVISORY = "$JS.EVENT.ADVISORY"


def heard(listener: Client) -> list[Message]:
    """The advisories that came; answers to other clients come to the same inbox."""
    return [message for message in listener.take() if message.subject.startswith(ADVISORY)]


def test_a_streams_life_is_told_step_by_step(driver: Driver) -> None:
    listener = driver.client()
    listener.subscribe(f"{ADVISORY}.STREAM.>")
    client = driver.client()
    for call in ("CREATE", "UPDATE"):
        client.api(f"STREAM.{call}.S", {"name": "S"})
    client.api("STREAM.DELETE.S")
    told = heard(listener)
    assert [message.subject for message in told] == [
        f"{ADVISORY}.STREAM.CREATED.S",
        f"{ADVISORY}.STREAM.UPDATED.S",
        f"{ADVISORY}.STREAM.DELETED.S",
    ]
    bodies = [message.json() for message in told]
    assert [body["action"] for body in bodies] == ["create", "modify", "delete"]
    assert len({body["id"] for body in bodies}) == 3
    first = bodies[0]
    assert list(first) == ["type", "id", "timestamp", "stream", "action"]
    assert first["type"] == "io.nats.jetstream.advisory.v1.stream_action"
    assert first["timestamp"] == "2023-11-14T22:13:20Z"
    assert len(first["id"]) == 22
    assert told[0].header == b""
    assert told[0].reply == ""


def test_creating_the_same_stream_again_is_no_news(driver: Driver) -> None:
    listener = driver.client()
    listener.subscribe(f"{ADVISORY}.STREAM.>")
    for _ in range(2):
        driver.client().api("STREAM.CREATE.S", {"name": "S"})
    assert len(heard(listener)) == 1


def test_a_consumer_is_told_of_with_its_stream(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    listener = driver.client()
    listener.subscribe(f"{ADVISORY}.CONSUMER.>")
    client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"durable_name": "C"}})
    client.api("CONSUMER.DELETE.S.C")
    told = heard(listener)
    assert [message.subject for message in told] == [
        f"{ADVISORY}.CONSUMER.CREATED.S.C",
        f"{ADVISORY}.CONSUMER.DELETED.S.C",
    ]
    body = told[0].json()
    assert body["type"] == "io.nats.jetstream.advisory.v1.consumer_action"
    assert (body["stream"], body["consumer"], body["action"]) == ("S", "C", "create")


def test_each_call_is_audited_with_who_asked_and_what_was_said(driver: Driver) -> None:
    listener = driver.client()
    listener.subscribe(f"{ADVISORY}.API")
    client = driver.client(name="me", lang="py", version="9")
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("STREAM.INFO.NO")
    created, missing = (message.json() for message in heard(listener))
    assert created["type"] == "io.nats.jetstream.advisory.v1.api_audit"
    assert created["subject"] == "$JS.API.STREAM.CREATE.S"
    assert json.loads(created["request"]) == {"name": "S"}
    assert json.loads(created["response"])["did_create"] is True
    who = created["client"]
    assert (who["name"], who["lang"], who["ver"]) == ("me", "py", "9")
    assert (who["acc"], who["kind"], who["client_type"]) == ("$G", "Client", "nats")
    assert "request" not in missing
    assert json.loads(missing["response"])["error"]["err_code"] == 10059


def test_the_domain_is_in_every_advisory() -> None:
    driver = Driver(options=EngineOptions(jetstream=True, domain="hub")).start()
    listener = driver.client()
    listener.subscribe(f"{ADVISORY}.STREAM.>")
    driver.client().api("STREAM.CREATE.S", {"name": "S"})
    assert heard(listener)[0].json()["domain"] == "hub"


def test_a_stream_may_keep_advisories(driver: Driver) -> None:
    client = driver.client()
    created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": [f"{ADVISORY}.STREAM.>"]})
    assert created["state"]["messages"] == 0
    client.api("STREAM.CREATE.T", {"name": "T"})
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 2
    got = client.api("STREAM.MSG.GET.S", {"seq": 2})["message"]
    assert got["subject"] == f"{ADVISORY}.STREAM.CREATED.T"


def test_calls_are_counted_and_errors_apart(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S"})
    client.api("STREAM.INFO.NO")
    client.publish("S")
    client.api("STREAM.MSG.GET.S", {"seq": 1})  # a successful get does not count
    found = client.api("INFO")["api"]
    assert (found["total"], found["errors"]) == (2, 1)
