"""Whatever a peer sends, twice as much of it is twice the work: nobody can block the server with
one large request, or with many small ones."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.testing.driver import Client, Driver, encode
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.growth import assert_grows_linearly

Act = Callable[[], object]
Scenario = Callable[[int], Act]
SCENARIOS: dict[str, tuple[Scenario, int]] = {}


def growing(size: int) -> Callable[[Scenario], Scenario]:
    """Note a scenario with the smallest of its three sizes."""

    def note(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario.__name__] = (scenario, size)
        return scenario

    return note


# -- worlds ------------------------------------------------------------------------------------


def client_of(**options: Any) -> Client:
    """A connection to an engine of its own."""
    return Driver(**options).start().client()


def with_stream(n_messages: int = 0, subject: str = "s.%d", **config: Any) -> Client:
    """A client of a server with a stream S of `s.>` in memory, and messages in it."""
    client = client_of()
    make_stream(client, **config)
    for i in range(n_messages):
        client.send(encode(subject % i if "%" in subject else subject, b"x"))
    return client


def make_stream(client: Client, **config: Any) -> None:
    wanted = {"name": "S", "subjects": ["s.>"], "storage": "memory"} | config
    answer = client.api(f"STREAM.CREATE.{wanted['name']}", wanted)
    assert "error" not in answer, answer["error"]


def make_consumer(client: Client, name: str = "C", **config: Any) -> None:
    wanted = {"durable_name": name, "ack_policy": "explicit"} | config
    answer = client.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": wanted})
    assert "error" not in answer, answer["error"]


def ask(client: Client, subject: str, body: Any, error: int = 0) -> Act:
    """An API call, to be made when the work is counted."""

    def act() -> None:
        answer = client.api(subject, body)
        assert answer.get("error", {}).get("err_code", 0) == error, answer["error"]

    return act


def send(client: Client, *frames: bytes) -> Act:
    """Frames in one read, to be sent when the work is counted."""
    data = b"".join(frames)
    return lambda: client.send(data)


# -- lists in requests -------------------------------------------------------------------------


@growing(100)
def subjects_of_a_new_stream(n: int) -> Act:
    subjects = [f"a.{i}" for i in range(n)]
    return ask(
        client_of(), "STREAM.CREATE.T", {"name": "T", "subjects": subjects, "storage": "memory"}
    )


@growing(100)
def subjects_with_wildcards_of_a_new_stream(n: int) -> Act:
    subjects = [f"a.{i}.*.>" for i in range(n)]
    return ask(
        client_of(), "STREAM.CREATE.T", {"name": "T", "subjects": subjects, "storage": "memory"}
    )


@growing(100)
def subjects_of_which_the_last_two_overlap(n: int) -> Act:
    subjects = [*(f"a.{i}" for i in range(n)), "b.*", "b.c"]
    return ask(client_of(), "STREAM.CREATE.T", {"name": "T", "subjects": subjects}, 10052)


@growing(100)
def subjects_of_an_updated_stream(n: int) -> Act:
    client = with_stream(subjects=[f"s.{i}" for i in range(n)])
    subjects = [f"s.{i}" for i in range(n // 2, n + n // 2)]
    return ask(client, "STREAM.UPDATE.S", {"name": "S", "subjects": subjects, "storage": "memory"})


@growing(100)
def subjects_that_another_stream_takes(n: int) -> Act:
    client = with_stream(subjects=[f"s.{i}" for i in range(n)])
    subjects = [*(f"t.{i}" for i in range(n)), "s.1"]
    return ask(client, "STREAM.CREATE.T", {"name": "T", "subjects": subjects}, 10065)


@growing(100)
def filters_of_a_new_consumer(n: int) -> Act:
    client = with_stream()
    filters = [f"s.{i}.*" for i in range(n)]
    body = {"stream_name": "S", "config": {"durable_name": "C", "filter_subjects": filters}}
    return ask(client, "CONSUMER.CREATE.S.C", body)


@growing(100)
def filters_of_which_the_last_overlaps(n: int) -> Act:
    client = with_stream()
    filters = [*(f"s.{i}" for i in range(n)), "s.*"]
    body = {"stream_name": "S", "config": {"durable_name": "C", "filter_subjects": filters}}
    return ask(client, "CONSUMER.CREATE.S.C", body, 10138)


@growing(50)
def filters_of_a_new_consumer_on_many_subjects(n: int) -> Act:
    client = with_stream(n)
    filters = [f"s.{i}" for i in range(n)]
    body = {"stream_name": "S", "config": {"durable_name": "C", "filter_subjects": filters}}
    return ask(client, "CONSUMER.CREATE.S.C", body)


@growing(50)
def filters_with_wildcards_of_a_new_consumer_on_many_subjects(n: int) -> Act:
    client = with_stream(n, "s.%d.x")
    filters = [f"s.{i}.*" if i % 2 else f"s.{i}.>" for i in range(n)]
    body = {"stream_name": "S", "config": {"durable_name": "C", "filter_subjects": filters}}
    return ask(client, "CONSUMER.CREATE.S.C", body)


@growing(50)
def messages_for_a_consumer_with_many_filters(n: int) -> Act:
    client = with_stream(n)
    make_consumer(client, filter_subjects=[f"s.{i}" for i in range(n)], max_ack_pending=-1)
    return send(
        client, b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C _INBOX.t.9 %d\r\n%d\r\n" % (len(str(n)), n)
    )


@growing(50)
def filters_of_two_consumers_of_a_work_queue(n: int) -> Act:
    client = with_stream(retention="workqueue")
    make_consumer(client, "A", filter_subjects=[f"s.a.{i}" for i in range(n)])
    filters = [f"s.b.{i}" for i in range(n)]
    config = {"durable_name": "B", "ack_policy": "explicit", "filter_subjects": filters}
    return ask(client, "CONSUMER.CREATE.S.B", {"stream_name": "S", "config": config})


@growing(200)
def metadata_of_a_new_stream(n: int) -> Act:
    metadata = {f"k{i}": "v" for i in range(n)}
    return ask(
        client_of(), "STREAM.CREATE.T", {"name": "T", "metadata": metadata, "storage": "memory"}
    )


@growing(200)
def tags_of_a_placement(n: int) -> Act:
    placement = {"cluster": "C", "tags": [f"t{i}" for i in range(n)]}
    return ask(
        client_of(), "STREAM.CREATE.T", {"name": "T", "placement": placement, "storage": "memory"}
    )


@growing(200)
def backoff_of_a_new_consumer(n: int) -> Act:
    config = {"durable_name": "C", "ack_policy": "explicit", "backoff": [SECOND] * n}
    return ask(with_stream(), "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})


@growing(200)
def tokens_of_a_streams_subject(n: int) -> Act:
    subject = ".".join(["a"] * 10 * n)
    return ask(
        client_of(), "STREAM.CREATE.T", {"name": "T", "subjects": [subject], "storage": "memory"}
    )


@growing(50)
def wildcards_of_a_transform(n: int) -> Act:
    source = ".".join(["*"] * n)
    dest = ".".join(f"{{{{wildcard({i + 1})}}}}" for i in range(n))
    transform = {"src": source, "dest": dest}
    return ask(
        client_of(), "STREAM.CREATE.T",
        {"name": "T", "subject_transform": transform, "storage": "memory"},
    )  # fmt: skip


@growing(100)
def objects_in_one_request(n: int) -> Act:
    body = b'{"name":"T","storage":"memory"}' * n
    return ask(client_of(), "STREAM.CREATE.T", body)


@growing(50)
def last_messages_of_many_subjects(n: int) -> Act:
    client = with_stream(n, allow_direct=True)
    return direct(client, n, [f"s.{i}" for i in range(n)])


@growing(50)
def last_messages_of_many_patterns(n: int) -> Act:
    client = with_stream(n, "s.%d.a.b.c.d.e", allow_direct=True)
    shapes = ["s.%d.*.>", "s.%d.a.>", "s.%d.a.b.>", "s.%d.*.b.>", "s.%d.*.*.c.>", "s.%d.>"]
    return direct(client, n, [shapes[i % 6] % i for i in range(n)])


@growing(50)
def last_messages_of_the_same_pattern_again_and_again(n: int) -> Act:
    client = with_stream(n, allow_direct=True)
    return direct(client, n, ["s.*"] * n)


def direct(client: Client, n: int, subjects: list[str]) -> Act:
    def act() -> None:
        answers = client.ask("$JS.API.DIRECT.GET.S", {"multi_last": subjects, "batch": 1})
        assert answers[0].status == "", answers

    return act


# -- what a stream says of itself --------------------------------------------------------------


@growing(100)
def subjects_in_a_streams_info(n: int) -> Act:
    return ask(with_stream(n), "STREAM.INFO.S", {"subjects_filter": ">"})


@growing(100)
def deleted_sequences_in_a_streams_info(n: int) -> Act:
    client = with_stream(2 * n)
    for seq in range(2, 2 * n, 2):
        client.api("STREAM.MSG.DELETE.S", {"seq": seq})
    return ask(client, "STREAM.INFO.S", {"deleted_details": True})


@growing(50)
def names_of_streams_by_subject(n: int) -> Act:
    client = client_of()
    make_stream(client, subjects=[f"s.{i}" for i in range(n)])
    return ask(client, "STREAM.NAMES", {"subject": "s.*"})


# -- many messages -----------------------------------------------------------------------------


@growing(200)
def headers_of_a_message(n: int) -> Act:
    client = with_stream()
    headers = {f"h{i}": "v" for i in range(n)}
    return send(client, encode("s.a", b"x", headers=headers))


@growing(200)
def expectations_of_a_message(n: int) -> Act:
    client = with_stream()
    headers = {f"Nats-X{i}": "v" for i in range(n)}
    return send(client, encode("s.a", b"x", headers=headers))


@growing(100)
def tokens_of_a_subject(n: int) -> Act:
    client = with_stream(subjects=["*.>"], no_ack=True)
    client.subscribe("*.*.>")
    return send(client, encode(".".join(["a"] * n), b"x"))


@growing(100)
def messages_with_ids(n: int) -> Act:
    client = with_stream()
    frames = [encode("s.a", b"x", headers={"Nats-Msg-Id": str(i)}) for i in range(n)]
    return send(client, *frames)


@growing(100)
def message_ids_that_leave_the_window(n: int) -> Act:
    client = with_stream(duplicate_window=SECOND)
    for i in range(n):
        client.driver.clock.now += 1
        client.send(encode("s.a", b"x", headers={"Nats-Msg-Id": str(i)}))
    return lambda: client.driver.advance(3 * SECOND)


@growing(50)
def message_ids_that_have_come_twice(n: int) -> Act:
    disk = SimulatedDisk(Random(1))
    client = client_of(disk=disk)
    make_stream(client, storage="file", duplicate_window=SECOND // 10)
    for _ in range(2):
        for i in range(n):
            client.send(encode("s.a", b"x", headers={"Nats-Msg-Id": str(i)}))
        client.driver.advance(SECOND)
    client.api(
        "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "duplicate_window": 3600 * SECOND}
    )
    client.driver.stop()
    again = Driver(disk, now=client.driver.clock.now)
    return again.start


@growing(100)
def subjects_that_may_have_one_message(n: int) -> Act:
    client = with_stream(n, max_msgs_per_subject=1)
    return send(client, *(encode(f"s.{i}", b"x") for i in range(n)))


@growing(100)
def subjects_that_may_have_three_messages(n: int) -> Act:
    client = with_stream(max_msgs_per_subject=3)
    for _ in range(3):
        client.send(b"".join(encode(f"s.{i}", b"x") for i in range(n)))
    return send(client, *(encode(f"s.{i}", b"x") for i in range(n)))


@growing(100)
def messages_that_push_others_out(n: int) -> Act:
    client = with_stream(n, max_msgs=n)
    return send(client, *(encode(f"s.{i}", b"x") for i in range(n)))


@growing(100)
def messages_deleted_one_by_one(n: int) -> Act:
    client = with_stream(2 * n)

    def act() -> None:
        for seq in range(2, 2 * n, 2):
            client.api("STREAM.MSG.DELETE.S", {"seq": seq})

    return act


@growing(100)
def messages_deleted_from_the_end(n: int) -> Act:
    client = with_stream(2 * n, "s.a")

    def act() -> None:
        for seq in range(2 * n, n, -1):
            client.api("STREAM.MSG.DELETE.S", {"seq": seq})
            client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})

    return act


@growing(200)
def messages_purged(n: int) -> Act:
    return ask(with_stream(n), "STREAM.PURGE.S", {})


@growing(100)
def messages_purged_by_subject(n: int) -> Act:
    client = with_stream(2 * n)
    return ask(client, "STREAM.PURGE.S", {"filter": "s.*", "keep": n})


@growing(100)
def messages_of_a_file_purged_after_single_publishes(n: int) -> Act:
    client = client_of(disk=SimulatedDisk(Random(1)))
    make_stream(client, storage="file")
    for i in range(n):
        client.store("s.a", b"%d" % i)
    return ask(client, "STREAM.PURGE.S", {"seq": n - 1})


@growing(50)
def rollups(n: int) -> Act:
    client = with_stream(n, allow_rollup_hdrs=True)
    make_consumer(client, filter_subject="s.>")
    return send(client, *(encode(f"s.{i}", b"x", headers={"Nats-Rollup": "sub"}) for i in range(n)))


# -- subscriptions -----------------------------------------------------------------------------


@growing(200)
def subscriptions_to_one_subject_that_end(n: int) -> Act:
    client = client_of()
    client.send(b"".join(b"SUB a %d\r\n" % (i + 2) for i in range(n)))
    return send(client, *(b"UNSUB %d\r\n" % (i + 2) for i in reversed(range(n))))


@growing(200)
def subscriptions_to_many_subjects(n: int) -> Act:
    client = client_of()
    frames = [b"SUB a.%d.* %d\r\n" % (i, i + 2) for i in range(n)]
    return send(client, *frames, *(b"UNSUB %d\r\n" % (i + 2) for i in range(n)))


@growing(200)
def subscriptions_that_end_with_the_connection(n: int) -> Act:
    client = client_of()
    client.send(b"".join(b"SUB a %d\r\n" % (i + 2) for i in range(n)))
    return lambda: client.session.gone("Client Closed")


@growing(200)
def subscriptions_that_end_with_their_first_message(n: int) -> Act:
    client = client_of()
    client.send(b"".join(b"SUB a %d\r\nUNSUB %d 1\r\n" % (i + 2, i + 2) for i in range(n)))
    return send(client, encode("a", b"x"))


@growing(50)
def wildcard_subscriptions_beside_push_consumers(n: int) -> Act:
    client = with_stream()
    for i in range(n):
        make_consumer(client, f"C{i}", deliver_subject=f"d.{i}")
    return send(client, *(b"SUB e.%d.> %d\r\n" % (i, i + 2) for i in range(n)))


@growing(200)
def refusals(n: int) -> Act:
    return send(client_of(), *[b"SUB a..b 7\r\n"] * n)


# -- slow senders ------------------------------------------------------------------------------


@growing(1000)
def bytes_of_a_line_one_by_one(n: int) -> Act:
    client = client_of()
    client.session.limit_line(10_000)
    line = b"SUB " + b"a" * n + b" 7\r\n"

    def act() -> None:
        for i in range(len(line)):
            client.session.receive(line[i : i + 1])

    return act


@growing(1000)
def bytes_of_a_message_one_by_one(n: int) -> Act:
    client = client_of()
    frame = encode("a", b"x" * n)

    def act() -> None:
        for i in range(len(frame)):
            client.session.receive(frame[i : i + 1])

    return act


@growing(300)
def small_frames_in_one_read(n: int) -> Act:
    return send(client_of(), b"PING\r\n" * n)


# -- consumers ---------------------------------------------------------------------------------


@growing(50)
def consumers_created(n: int) -> Act:
    client = with_stream(10)

    def act() -> None:
        for i in range(n):
            make_consumer(client, f"C{i}", filter_subject=f"s.{i}")

    return act


@growing(50)
def consumers_of_a_work_queue_created(n: int) -> Act:
    client = with_stream(10, retention="workqueue")

    def act() -> None:
        for i in range(n):
            make_consumer(client, f"C{i}", filter_subject=f"s.{i}")

    return act


@growing(50)
def consumers_deleted(n: int) -> Act:
    client = with_stream(10)
    for i in range(n):
        make_consumer(client, f"C{i}")

    def act() -> None:
        for i in reversed(range(n)):
            client.api(f"CONSUMER.DELETE.S.C{i}")

    return act


@growing(50)
def consumers_of_an_interest_stream_deleted_with_it(n: int) -> Act:
    client = with_stream(retention="interest")
    for i in range(n):
        make_consumer(client, f"C{i}")
    client.send(b"".join(encode(f"s.{i}", b"x") for i in range(n)))
    return ask(client, "STREAM.DELETE.S", b"")


@growing(50)
def consumers_paused(n: int) -> Act:
    client = with_stream(10)
    make_consumer(client)

    def act() -> None:
        for i in range(n):
            until = f"2030-01-01T00:{i // 60 % 60:02}:{i % 60:02}Z"
            client.api("CONSUMER.PAUSE.S.C", {"pause_until": until})

    return act


@growing(50)
def streams_created_and_deleted(n: int) -> Act:
    client = client_of()

    def act() -> None:
        for i in range(n):
            make_stream(client, name=f"S{i}", subjects=[f"s.{i}"], max_bytes=1000)
        for i in range(n):
            client.api(f"STREAM.DELETE.S{i}")

    return act


NEXT = b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C _INBOX.t.9 %d\r\n%b\r\n"


def pull(body: bytes) -> bytes:
    return NEXT % (len(body), body)


@growing(100)
def pulls_that_wait(n: int) -> Act:
    client = with_stream()
    make_consumer(client, max_waiting=100_000)
    return send(client, *[pull(b'{"batch":1,"expires":60000000000}')] * n)


@growing(100)
def pulls_beyond_those_that_may_wait(n: int) -> Act:
    client = with_stream()
    make_consumer(client, max_waiting=n)
    client.send(pull(b'{"batch":1,"expires":60000000000}') * n)
    return send(client, *[pull(b'{"batch":1,"expires":60000000000}')] * n)


@growing(100)
def pulls_without_waiting(n: int) -> Act:
    client = with_stream(4 * n)
    make_consumer(client, max_waiting=100_000, max_ack_pending=1)
    return send(client, *[pull(b'{"batch":1,"no_wait":true,"expires":60000000000}')] * n)


@growing(100)
def pulls_without_waiting_while_much_is_due(n: int) -> Act:
    client = with_stream(2 * n)
    make_consumer(client, max_waiting=100_000, max_ack_pending=-1)
    client.send(pull(b"%d" % n))
    replies = [message.reply for message in client.take()]
    for reply in replies:
        client.session.receive(encode(reply, b"-NAK"))
    return lambda: client.session.receive(pull(b'{"batch":1,"no_wait":true}') * n)


@growing(100)
def pulls_of_a_client_that_catches_up(n: int) -> Act:
    client = with_stream()
    make_consumer(client, max_waiting=100_000, max_ack_pending=-1)
    client.send(pull(b"2") * n)
    client.transport.backlog = 60_000_000
    client.send(encode("s.a", b"x" * 200_000))

    def act() -> None:
        client.transport.backlog = 0
        client.session.drained()
        client.driver.finish()

    return act


def delivered(n: int, **config: Any) -> tuple[Client, list[str]]:
    """A client that was delivered so many messages at different times, with what to acknowledge."""
    client = with_stream(n)
    make_consumer(client, max_ack_pending=-1, **config)
    replies = []
    for _ in range(n):
        client.driver.clock.now += 1
        client.send(pull(b"1"))
        replies += [message.reply for message in client.take()]
    assert len(replies) == n
    return client, replies


@growing(100)
def acknowledgements_in_reverse_order(n: int) -> Act:
    client, replies = delivered(n)
    return send(client, *(encode(reply, b"+ACK") for reply in reversed(replies)))


@growing(100)
def messages_that_follow_one_that_nobody_acknowledges(n: int) -> Act:
    client, replies = delivered(n)
    client.send(b"".join(encode(reply, b"+ACK") for reply in replies[1:]))

    def act() -> None:
        for _ in range(n):
            client.driver.clock.now += 1
            client.send(encode("s.a", b"x") + pull(b"1"))
            [message] = client.take()
            client.send(encode(message.reply, b"+ACK"))
            client.api("CONSUMER.INFO.S.C")

    return act


@growing(100)
def messages_put_off_for_different_times(n: int) -> Act:
    client, replies = delivered(n)
    for i, reply in enumerate(replies):
        client.send(encode(reply, b'-NAK {"delay":%d}' % (SECOND + i * 1000)))
    return lambda: client.driver.advance(2 * SECOND)


@growing(100)
def messages_whose_wait_ends_at_different_times(n: int) -> Act:
    client, _ = delivered(n, ack_wait=SECOND)
    return lambda: client.driver.advance(SECOND + SECOND // 2)


@growing(100)
def acknowledgements_that_want_an_answer(n: int) -> Act:
    client = client_of(disk=SimulatedDisk(Random(1)))
    make_stream(client, storage="file")
    make_consumer(client, max_ack_pending=-1)
    client.send(b"".join(encode(f"s.{i}", b"x") for i in range(n)) + pull(b"%d" % n))
    replies = [message.reply for message in client.take()]
    assert len(replies) == n
    client.driver.runner.hold()
    client.send(b"".join(encode(reply, b"+ACK", "_INBOX.t.8") for reply in replies))

    def act() -> None:
        while client.driver.runner.step():
            client.driver.finish()

    return act


@growing(100)
def one_message_refused_and_put_off_again_and_again(n: int) -> Act:
    client, replies = delivered(1)
    frames = encode(replies[0], b"-NAK") + encode(replies[0], b'-NAK {"delay":60000000000}')
    client.send(frames * n)
    return lambda: client.send(pull(b'{"batch":1,"no_wait":true}') * n)


@growing(100)
def messages_that_leave_the_front_of_a_filtered_consumer(n: int) -> Act:
    client = with_stream(n, max_msgs=n)
    make_consumer(client, filter_subject="s.>", max_ack_pending=1)
    client.send(pull(b"2"))

    def act() -> None:
        for i in range(n):
            client.send(encode(f"s.{i}", b"x"))

    return act


@growing(50)
def timers_set_and_cancelled(n: int) -> Act:
    client = with_stream(1)
    make_consumer(client, max_ack_pending=-1)

    def act() -> None:
        for i in range(n):
            client.send(pull(b'{"batch":1,"expires":%d}' % (SECOND * (n - i))))

    return act


@pytest.mark.parametrize("name", SCENARIOS)
def test_twice_as_much_is_twice_the_work(name: str) -> None:
    scenario, size = SCENARIOS[name]
    assert_grows_linearly(scenario, size)
