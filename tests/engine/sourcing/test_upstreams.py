"""Upstreams that let go of what was taken, that somebody else made a consumer on, or that are
reached by prefixes."""

from typing import Any

import pytest

from slipstream.engine.protocol.options import EngineOptions
from slipstream.testing.driver import Driver
from tests.engine.sourcing.conftest import World

FOLLOWERS: list[dict[str, Any]] = [{"mirror": {"name": "W"}}, {"sources": [{"name": "W"}]}]


def numbers(first: int, last: int) -> list[bytes]:
    """The bodies that `World.publish` stores."""
    return [b"%d" % n for n in range(first, last + 1)]


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_an_upstream_keeps_a_message_until_its_follower_has_it_on_disk(
    world: World, retention: str, follower: dict[str, Any]
) -> None:
    world.create("W", subjects=["w.>"], retention=retention)
    world.create("F", **follower)
    world.settle()
    world.driver.runner.hold()
    world.client.send(b"PUB w.x 1\r\n1\r\n")
    upstream, copy = (world.driver.js.streams[name].log for name in ("W", "F"))
    while upstream.messages == 0 or copy.last_seq == 0:  # published, on disk, and copied
        assert world.driver.runner.step()
        world.driver.finish()
    world.settle(3)
    assert (copy.durable_seq, upstream.messages) == (0, 1)
    world.driver.runner.release()
    world.driver.finish()
    world.driver.runner.held = False
    world.settle(3)
    assert (copy.durable_seq, upstream.messages) == (1, 0)


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("crashes", [True, False])
def test_nothing_is_missing_or_twice_after_a_restart(
    world: World, retention: str, follower: dict[str, Any], crashes: bool
) -> None:
    world.create("W", subjects=["w.>"], retention=retention)
    world.create("F", **follower)
    world.settle()
    world.publish("w.x", 1, 30)
    if crashes:
        world.crash()
    else:
        world.restart()
    world.publish("w.x", 31, 60)
    world.settle()
    assert world.bodies("F") == numbers(1, 60)
    assert world.contents("W") == []


def test_many_messages_flow_faster_than_heartbeats(world: World) -> None:
    world.create("W", subjects=["w.>"], retention="workqueue")
    world.create("F", mirror={"name": "W"})
    world.settle()
    for n in range(5000):
        world.client.session.receive(b"PUB w.x 2\r\n%02d\r\n" % (n % 100))
    world.driver.finish()
    assert world.info("F")["state"]["messages"] == 5000
    assert world.info("W")["state"]["messages"] <= 1000
    world.settle(2)
    assert world.contents("W") == []


def test_the_durable_consumer_goes_with_the_follower(world: World) -> None:
    world.create("W", subjects=["w.>"], retention="interest")
    world.create("F", sources=[{"name": "W"}])
    world.settle()
    [info] = world.client.api("CONSUMER.LIST.W")["consumers"]
    assert (info["config"]["ack_policy"], info["config"]["sourcing"]) == ("flow_control", True)
    world.update("F", subjects=["f"])
    assert world.client.api("CONSUMER.NAMES.W")["consumers"] == []


def test_a_stream_that_comes_to_go_by_interest_keeps_what_its_mirror_has_not(
    world: World,
) -> None:
    world.create("W", subjects=["w.>"])
    world.create("F", mirror={"name": "W"})
    world.settle()
    world.update("W", subjects=["w.>"], retention="interest")
    world.settle(20)
    world.publish("w.x", 1, 3)
    world.settle(3)
    assert world.bodies("F") == numbers(1, 3)
    assert world.contents("W") == []


def made_consumer(world: World, **config: Any) -> Any:
    """A durable consumer C on W, as an operator makes one for a follower."""
    asked = {"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d.x", **config}
    body = {"stream_name": "W", "config": asked}
    return world.client.api("CONSUMER.DURABLE.CREATE.W.C", body)


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
@pytest.mark.parametrize("kind", ["mirror", "sources"])
def test_a_consumer_that_was_made_for_it_is_used(world: World, retention: str, kind: str) -> None:
    world.create("W", subjects=["w.>"], retention=retention)
    made_consumer(world)
    world.publish("w.x", 1, 5)
    source = {"name": "W", "consumer": {"name": "C", "deliver_subject": "d.x"}}
    world.create("F", **{kind: source if kind == "mirror" else [source]})
    world.settle()
    world.publish("w.x", 6, 10)
    world.restart()
    world.publish("w.x", 11, 12)
    world.settle()
    assert world.bodies("F") == numbers(1, 12)
    assert world.client.api("CONSUMER.NAMES.W")["consumers"] == ["C"]
    assert world.client.api("CONSUMER.INFO.W.C")["ack_floor"]["stream_seq"] == 12
    world.client.api("STREAM.DELETE.F")
    assert world.client.api("CONSUMER.NAMES.W")["consumers"] == ["C"]


@pytest.mark.parametrize(("kind", "code"), [("mirror", 10214), ("sources", 10217)])
def test_a_consumer_that_acknowledges_otherwise_is_not_used(
    world: World, kind: str, code: int
) -> None:
    world.create("W", subjects=["w.>"])
    made_consumer(world, ack_policy="explicit")
    world.publish("w.x", 1, 5)
    source = {"name": "W", "consumer": {"name": "C", "deliver_subject": "d.x"}}
    world.create("F", **{kind: source if kind == "mirror" else [source]})
    world.settle()
    info = world.info("F")
    shown = info[kind] if kind == "mirror" else info[kind][0]
    assert shown["error"]["err_code"] == code
    assert world.contents("F") == []


def test_a_stream_of_the_domain_is_reached_by_its_prefix() -> None:
    driver = Driver(options=EngineOptions(server_name="here", jetstream=True, domain="hub")).start()
    client = driver.client()
    client.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u.>"]})
    client.store("u.a", b"1")
    external = {"api": "$JS.hub.API", "deliver": "to.me"}
    mirror = {"name": "U", "external": external}
    client.api("STREAM.CREATE.M", {"name": "M", "mirror": mirror})
    client.api("STREAM.CREATE.S", {"name": "S", "sources": [mirror]})
    driver.advance(5 * 10**9)
    client.store("u.a", b"2")
    for name in ("M", "S"):
        assert client.api(f"STREAM.INFO.{name}")["state"]["messages"] == 2
    assert client.api("STREAM.INFO.M")["mirror"]["external"] == external
    subjects = {c.config.deliver_subject for c in driver.js.streams["U"].direct_consumers.values()}
    assert all(subject.startswith("to.me.") for subject in subjects)


def test_a_prefix_that_leads_nowhere_is_asked_again_and_again_and_costs_nothing_else(
    world: World,
) -> None:
    world.create("M", mirror={"name": "U", "external": {"api": "away.api", "deliver": "away.to"}})
    world.settle(60)
    assert world.info("M")["mirror"]["active"] == -1
    other = world.driver.client()
    other.subscribe("away.api.>")
    world.settle(31)
    [asked] = other.take()
    assert asked.subject == "away.api.CONSUMER.CREATE.U"


class Elsewhere:
    """A client that plays the server that the upstream is on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.driver.client()
        self.client.subscribe("away.api.>")
        external = {"api": "away.api", "deliver": "away.to"}
        world.create("M", mirror={"name": "U", "external": external})
        world.settle(1)
        self.answer()

    def answer(self) -> None:
        """Answer the request for a consumer."""
        [self.asked] = [m for m in self.client.take() if m.subject.startswith("away.api")]
        self.subject = self.asked.json()["config"]["deliver_subject"]
        made = {"stream_name": "U", "name": "C", "delivered": {"consumer_seq": 0, "stream_seq": 0}}
        self.client.publish(self.asked.reply, str(made).replace("'", '"').encode())

    def send(self, reply: str, header: bytes, body: bytes) -> None:
        """Send something to where the consumer delivers, as a link to another server does."""
        account = self.world.driver.engine.default_account
        account.send(self.subject.encode(), reply.encode(), header, body)
        self.world.driver.finish()

    def deliver(self, seq: int, number: int, head: str = "$JS.ACK.U.C") -> None:
        """Deliver a message of the upstream."""
        reply = f"{head}.1.{seq}.{number}.{1_700_000_000_000_000_000 + seq}.0"
        self.send(reply, b"", b"%d" % seq)


def test_a_server_elsewhere_may_name_its_domain_and_account_in_replies(world: World) -> None:
    away = Elsewhere(world)
    away.deliver(1, 1, "$JS.ACK.hub.ABCD.U.C")
    away.deliver(2, 2, "$JS.ACK.hub.ABCD.U.C")
    assert world.bodies("M") == numbers(1, 2)


def test_messages_of_an_earlier_consumer_are_not_taken(world: World) -> None:
    away = Elsewhere(world)
    away.deliver(1, 1)
    away.deliver(2, 2, "$JS.ACK.U.OLD")
    away.deliver(3, 2, "$JS.ACK.hub.ABCD.U.OLD")
    assert world.bodies("M") == numbers(1, 1)


def test_flow_control_is_answered_with_what_is_on_disk(world: World) -> None:
    away = Elsewhere(world)
    away.client.subscribe("fc", 3)
    away.deliver(1, 1)
    world.driver.runner.hold()
    away.deliver(2, 2)
    away.send("fc", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"")
    assert [m for m in away.client.take() if m.subject == "fc"] == []
    world.driver.runner.release()
    world.driver.finish()
    [answer] = [m for m in away.client.take() if m.subject == "fc"]
    assert answer.fields == {"Nats-Last-Consumer": "2", "Nats-Last-Stream": "2"}


def test_an_upstream_that_takes_the_mirror_for_stalled_is_answered(world: World) -> None:
    away = Elsewhere(world)
    away.client.subscribe("fc", 3)
    block = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Consumer-Stalled: fc\r\n"
    away.send("", block + b"\r\n", b"")
    assert [m.subject for m in away.client.take() if m.subject == "fc"] == ["fc"]


@pytest.mark.parametrize(
    ("kind", "levels"), [("mirror", ["4", None, None]), ("sources", ["5", "4", None])]
)
def test_a_server_of_an_earlier_version_is_asked_for_less(
    world: World, kind: str, levels: list[str | None]
) -> None:
    other = world.driver.client()
    other.subscribe("away.api.>")
    source = {"name": "U", "external": {"api": "away.api", "deliver": "away.to"}}
    world.create("F", **{kind: source if kind == "mirror" else [source]})
    asked = []
    for _ in levels:
        world.settle(9)
        [message] = [m for m in other.take() if m.subject.startswith("away.api")]
        asked.append(message.fields.get("Nats-Required-Api-Level"))
        other.publish(message.reply, b'{"error":{"code":412,"err_code":10185,"description":"no"}}')
    assert asked == levels


def test_an_answer_that_is_invalid_is_asked_for_again(world: World) -> None:
    external = {"api": "away.api", "deliver": "away.to"}
    other = world.driver.client()
    other.subscribe("away.api.>")
    world.create("M", mirror={"name": "U", "external": external})
    for body in (b"", b"[]", b"{", b'{"name":1}', b'{"error":{"code":"x"}}'):
        world.settle(31)
        asked = other.take()[-1]
        other.publish(asked.reply, body)
    world.settle(31)
    assert world.info("M")["mirror"]["active"] == -1


@pytest.mark.parametrize(
    "reply",
    [
        "", "$JS.ACK.U.C.", "$JS.ACK.U.C.1.x.2.3.0", "$JS.ACK.U.C.1.2.3", "$JS.ACK", "x.y",
        "$JS.ACK.U.C.1.-5.2.3.0", f"$JS.ACK.U.C.1.{2**70}.2.3.0", f"$JS.ACK.U.C.1.2.2.{2**70}.0",
    ],
)  # fmt: skip
def test_what_is_no_delivery_harms_nobody(world: World, reply: str) -> None:
    away = Elsewhere(world)
    away.deliver(1, 1)
    away.send(reply, b"", b"bad")
    world.settle(40)
    assert world.bodies("M")[:1] == numbers(1, 1)
    assert b"bad" not in world.bodies("M")
