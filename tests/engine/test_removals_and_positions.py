"""A consumer that has taken note of a removal does not say so on disk before the removal is there:
a crash that brings the message back has to find the consumer before it."""

import pytest

from slipstream.log.commit_log import EntryBatch
from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"


@pytest.fixture
def driver(disk: SimulatedDisk) -> Driver:
    """An engine with a stream S of three messages, which consumer C has out."""
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs_per_subject": 1})
    durable = {"durable_name": "C", "ack_policy": "explicit"}
    client.api("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": durable})
    for subject in ("s.a", "s.b", "s.c"):
        client.store(subject)
    driver.advance(5 * SECOND)
    return driver


def pull(client: Client, batch: int = 10) -> dict[str, str]:
    """What a pull brings now: the subjects, and how each is acknowledged."""
    client.subscribe("in")
    client.publish(NEXT, b'{"batch":%d,"no_wait":true}' % batch, "in")
    return {message.subject: message.reply for message in client.take() if message.reply}


REMOVALS = {
    "a deletion": encode("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":1,"no_erase":true}', "_INBOX.t.d"),
    "a purge": encode("$JS.API.STREAM.PURGE.S", b'{"filter":"s.a"}', "_INBOX.t.d"),
    "a message that takes its place": encode("s.a", b"newer", "_INBOX.t.d"),
}


@pytest.mark.parametrize("what", REMOVALS)
def test_a_message_whose_removal_a_crash_takes_back_is_delivered(
    driver: Driver, disk: SimulatedDisk, what: str
) -> None:
    client = driver.client()
    replies = pull(client, 2)
    driver.advance(SECOND)  # its position is saved
    driver.runner.hold()
    client.send(REMOVALS[what])
    client.publish(replies["s.b"], b"", "_INBOX.t.a")  # a double acknowledgement of s.b
    for held in list(driver.runner.waiting):
        if isinstance(held.batch, EntryBatch):  # the commit log is ahead of the stream
            held.run()
    disk.crash()
    survivor = Driver(disk, now=driver.clock.now + 60 * SECOND).start().client()
    there = survivor.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]
    if there["seq"] == 1:
        assert "s.a" in pull(survivor)


@pytest.mark.parametrize("what", REMOVALS)
def test_a_double_acknowledgement_is_answered_after_a_removal_that_came_before_it(
    driver: Driver, disk: SimulatedDisk, what: str
) -> None:
    client = driver.client()
    replies = pull(client, 2)
    client.send(REMOVALS[what])
    client.publish(replies["s.b"], b"", "_INBOX.t.a")
    assert "_INBOX.t.a" in [message.subject for message in client.take()]
    disk.crash()
    survivor = Driver(disk, now=driver.clock.now + 60 * SECOND).start().client()
    info = survivor.api("CONSUMER.INFO.S.C")
    assert info["delivered"]["stream_seq"] == 2
    assert "s.b" not in pull(survivor)
