"""`slipstream why`: every reason that the page promises, on both servers."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slipstream
from slipstream.client.jetstream import JetStream
from slipstream.server.config.load import load_options
from slipstream.server.options import JetStreamOptions
from tests.cli.conftest import Cli
from tests.fix_nats_server import start_nats_server

CONFIGURATION = """
authorization { users = [
  { user: boss, password: secret }
  { user: guest, password: secret, permissions: { publish: { deny: "$JS.API.CONSUMER.>" } } }
] }
"""


class Why:
    """Asks for the reasons, and sets the scene with the client."""

    def __init__(self, cli: Cli, name: str) -> None:
        self.cli = cli
        self.name = name

    def found(self) -> dict[str, Any]:
        """The whole answer."""
        answer: dict[str, Any] = json.loads(self.cli("why", self.name, "c", "--json").out)
        return answer

    def blocking(self) -> list[str]:
        """The codes of what holds the consumer up."""
        return [reason["code"] for reason in self.found()["reasons"] if reason["blocks"]]

    def text(self, code: str) -> str:
        """What is said under a code; fails if nothing is."""
        found = self.found()["reasons"]
        reasons = {one["code"]: f"{one['text']} {one['advice']}".strip() for one in found}
        assert code in reasons, reasons
        text: str = reasons[code]
        return text

    def scene(self, *, messages: int = 0, taken: int = 0, then: str = "", **config: Any) -> None:
        """A stream with messages on `<name>.1` ..., and the consumer `c`; some are taken.

        `then` is what is waited for: "again", until one comes again; "spent", until none may.
        """
        asyncio.run(self._scene(messages, taken, then, config))

    async def _scene(self, messages: int, taken: int, then: str, config: dict[str, Any]) -> None:
        async with await slipstream.connect(self.cli.url) as nc:
            js: JetStream = nc.jetstream()
            await js.create_stream(name=self.name, subjects=[f"{self.name}.>"], storage="memory")
            for n in range(1, messages + 1):
                await js.publish(f"{self.name}.{n}", b"x")
            if config.get("deliver_subject"):
                await js.create_push_consumer(self.name, durable_name="c", **config)
                return
            consumer = await js.create_consumer(self.name, durable_name="c", **config)
            if taken:
                assert len(await consumer.fetch(taken, timeout=20)) == taken
            if then == "again":
                assert len(await consumer.fetch(1, timeout=20)) == 1
            if then == "spent":
                while (await consumer.info()).num_ack_pending:
                    await consumer.fetch(1, timeout=0.1)


@pytest.fixture
def why(cli: Cli, request: pytest.FixtureRequest) -> Why:
    """A scene of its own for each test."""
    return Why(cli, request.node.originalname)


def test_a_pause_and_what_ends_it(why: Why) -> None:
    why.scene(messages=1)
    why.cli("consumer", "pause", why.name, "c", "1h", "--force")
    assert why.blocking()[0] == "paused"
    assert f"`slipstream consumer resume {why.name} c` ends that" in why.text("paused")


def test_a_stream_without_messages_has_nothing_to_give(why: Why) -> None:
    why.scene()
    assert why.blocking() == ["nothing_pending", "nobody_asks"]
    assert "holds no messages" in why.text("nothing_pending")


def test_nothing_is_pending_when_everything_was_given(why: Why) -> None:
    why.scene(messages=2, taken=2, ack_policy="none")
    assert "everything up to sequence 2 of 2" in why.text("nothing_pending")


def test_a_consumer_that_begins_with_what_is_still_to_come_was_given_nothing(why: Why) -> None:
    why.scene(messages=2, deliver_policy="new")
    assert why.blocking() == ["nothing_pending", "deliver_new", "nobody_asks"]
    assert "none of the 2 messages" in why.text("nothing_pending")


def test_messages_out_for_acknowledgement_are_named_with_the_time_they_went_out(why: Why) -> None:
    why.scene(messages=3, taken=2, max_ack_pending=2)
    assert why.blocking()[0] == "max_ack_pending"
    text = why.text("max_ack_pending")
    assert f"1 ({why.name}.1, stored " in text
    assert f"2 ({why.name}.2, stored " in text
    assert f"3 ({why.name}.3" not in text
    assert "are out (max_ack_pending) since 20" in text
    assert " ago. Nothing new" in text


def test_nobody_asks(why: Why) -> None:
    why.scene(messages=1)
    assert why.blocking() == ["nobody_asks"]
    shown = why.cli("why", why.name, "c").out
    assert shown.startswith(f"Consumer {why.name} > c gets no messages now.")
    assert "✗ Nobody asks for messages" in shown


def test_a_filter_that_matches_no_stored_subject(why: Why) -> None:
    why.scene(
        messages=1, filter_subjects=[f"{why.name}.nope", f"{why.name}.1"], deliver_policy="new"
    )
    assert f'"{why.name}.nope" matches no subject' in why.text("filter_matches_nothing")


def test_of_many_filters_some_alone_are_looked_at(why: Why) -> None:
    many = [f"{why.name}.x{n}" for n in range(60)]
    why.scene(messages=1, filter_subjects=many)
    unmatched = [one for one in why.blocking() if one == "filter_matches_nothing"]
    assert len(unmatched) == 50


def test_what_comes_again_says_until_when_it_backs_off(why: Why) -> None:
    why.scene(messages=1, taken=1, then="again", backoff=[0.1, 600.0], max_deliver=5)
    text = why.text("redelivery")
    assert "1 message was delivered more than once" in text
    assert "backoff is over, at " in text
    assert "(in 9m" in text or "(in 10m0s)" in text  # as quick as the machine is


def test_messages_that_used_up_their_deliveries_are_named(why: Why) -> None:
    why.scene(messages=2, taken=2, then="spent", max_deliver=1, ack_wait=0.2)
    text = why.text("max_deliver")
    assert "2 messages have used up their only delivery" in text
    assert f"1 ({why.name}.1" in text
    assert f"2 ({why.name}.2" in text


def test_as_many_requests_wait_as_may(why: Why) -> None:
    why.scene(max_waiting=1)
    asking = why.cli.start("consumer", "next", why.name, "c", "--wait", "40s")
    try:
        _until(lambda: "max_waiting" in [one["code"] for one in why.found()["reasons"]], asking)
        assert "as many as may (max_waiting)" in why.text("max_waiting")
        assert why.blocking() == ["nothing_pending"]
    finally:
        asking.terminate()
        asking.communicate(timeout=20)


def _until(holds: Any, process: "subprocess.Popen[str]") -> None:
    for _ in range(60):
        if holds():
            return
        assert process.poll() is None, process.communicate()
    raise AssertionError("it never came to be")


def test_a_deliver_subject_without_interest(why: Why) -> None:
    why.scene(messages=1, deliver_subject="push.me", deliver_group="workers")
    assert why.blocking() == ["no_interest"]
    assert 'Nobody listens on its deliver subject "push.me"' in why.text("no_interest")
    assert 'queue group "workers"' in why.text("no_interest")


@pytest.fixture(params=("slipstream", "nats-server"))
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server where `guest` may not use the API of consumers."""
    file = tmp_path / "server.conf"
    file.write_text(CONFIGURATION)
    if request.param == "slipstream":
        options = load_options(str(file))
        options.port = -1
        options.jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path / "store"))
        with slipstream.Server(config=options) as server:
            yield server.url
        return
    real = start_nats_server(tmp_path / "real", "-c", str(file))
    yield real.url
    real.process.terminate()
    real.process.wait(10)


def test_a_permission_that_is_missing(guarded: str, tmp_path: Path) -> None:
    cli = Cli(guarded, tmp_path)
    boss = ("--user", "boss", "--password", "secret")
    cli("stream", "add", "S", "--subjects", "s", "--defaults", *boss)
    cli("consumer", "add", "S", "c", "--pull", "--defaults", *boss)
    denied = cli("why", "S", "c", "--user", "guest", "--password", "secret").out
    assert "The server forbids this user to ask" in denied
    assert "$JS.API.CONSUMER.INFO.S.c" in denied
