"""The hand-driven engine does what a test says, and nothing behind its back."""

from pathlib import Path

import pytest

from slipstream.log.disk import OsDisk
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Driver


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.chdir(tmp_path)
    return Driver(OsDisk()).start()


def test_an_acknowledgement_waits_while_the_disk_is_held(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    driver.runner.hold()
    assert client.ask("s.a", b"body") == []
    driver.runner.release()
    driver.finish()
    (answer,) = client.take()
    assert answer.json() == {"stream": "S", "seq": 1}


def test_the_disk_can_be_taken_step_by_step(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    driver.runner.hold()
    client.ask("s.a", b"body")
    assert driver.runner.step()  # the disk has it, the engine does not know yet
    driver.finish()
    assert client.take() == []
    while driver.runner.step():
        driver.finish()
    assert [message.json()["seq"] for message in client.take()] == [1]


def test_who_reads_all_of_a_stream_waits_for_the_disk_as_often_as_answers_do(
    driver: Driver,
) -> None:
    client, other = driver.client(), driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    client.store("s.a")
    driver.runner.hold()
    other.publish("$JS.API.STREAM.PURGE.S", b"", "_INBOX.other.1")
    published_then = ["s.b"]

    def settle() -> None:
        while driver.runner.step():
            driver.finish()
        if published_then:
            other.publish(published_then.pop())

    assert list(client.messages("S", settle)) == [2]


def test_a_failing_disk_refuses_what_waited(driver: Driver) -> None:
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    driver.runner.hold()
    client.ask("s.a", b"body")
    driver.runner.release(OSError(5, "Input/output error"))
    driver.finish()
    (answer,) = client.take()
    assert answer.json()["error"]["err_code"] == 10077


def test_time_stops_at_each_timer_on_the_way(driver: Driver) -> None:
    seen = []
    for seconds in (3, 1, 2):
        driver.engine.timers.after(seconds * SECOND, lambda: seen.append(driver.clock.now))
    begin = driver.clock.now
    driver.advance(2 * SECOND)
    assert seen == [begin + SECOND, begin + 2 * SECOND]
    assert driver.clock.now == begin + 2 * SECOND


def test_a_frame_may_come_in_pieces(driver: Driver) -> None:
    client = driver.client()
    client.transport.written += b"MSG a 1 5\r\nhe"
    assert client.take() == []
    client.transport.written += b"llo\r\nPONG\r\n"
    (message,) = client.take()
    assert message.body == b"hello"
    assert client.lines[-1] == b"PONG"
