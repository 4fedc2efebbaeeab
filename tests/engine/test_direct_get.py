"""Direct get: headers, batches, statuses, byte for byte (docs/protocol/streams.md#direct-get)."""

from random import Random
from typing import Any

import pytest

from slipstream.engine.protocol.options import EngineOptions
from slipstream.testing.driver import Client, Driver, Message
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.packed_rows import rows_in

SECOND = 1_000_000_000
STAMP = "2023-11-14T22:13:20Z"
LATER = "2023-11-14T22:13:30Z"


@pytest.fixture
def full(client: Client) -> Client:
    """Stream S with messages 1 to 6 on s.0 and s.1 by turns, of which 3 was deleted."""
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    for i in range(6):
        client.publish(f"s.{i % 2}", b"body %d" % (i + 1), headers={"X": str(i)} if i else None)
    client.api("STREAM.MSG.DELETE.S", {"seq": 3})
    return client


def ask(client: Client, asked: Any, subject: str = "") -> list[Message]:
    """Everything that a direct get brings."""
    return client.ask("$JS.API.DIRECT.GET.S" + subject, asked)


def statuses(client: Client, asked: Any, subject: str = "") -> list[str]:
    """The statuses that it brings."""
    return [message.status for message in ask(client, asked, subject)]


def test_a_message_comes_with_its_headers_and_what_is_known_of_it(full: Client) -> None:
    (message,) = ask(full, {"seq": 2})
    assert message.header == (
        b"NATS/1.0\r\nX: 1\r\nNats-Stream: S\r\nNats-Subject: s.1\r\nNats-Sequence: 2\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n"
    )
    assert message.body == b"body 2"


def test_a_message_without_headers_gets_some(full: Client) -> None:
    (message,) = ask(full, {"seq": 1})
    assert message.header == (
        b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.0\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n"
    )


def test_without_headers_there_are_none_at_all(full: Client) -> None:
    (message,) = ask(full, {"seq": 2, "no_hdr": True})
    assert message.header == b""
    assert message.body == b"body 2"


@pytest.mark.parametrize(
    ("asked", "seq"),
    [
        ({"seq": 4}, 4),
        ({"last_by_subj": "s.0"}, 5),
        ({"last_by_subj": "s.*"}, 6),
        ({"next_by_subj": "s.0"}, 1),
        ({"next_by_subj": "s.0", "seq": 2}, 5),
        ({"next_by_subj": "s.>", "seq": 3}, 4),
        ({"start_time": STAMP}, 1),
        ({"start_time": STAMP, "next_by_subj": "s.1"}, 2),
        ({"start_time": "2023-11-14T23:13:20+01:00"}, 1),
        ({"seq": 4, "bogus": 1}, 4),
    ],
)
def test_one_message_is_found(full: Client, asked: dict[str, Any], seq: int) -> None:
    (message,) = ask(full, asked)
    assert message.fields["Nats-Sequence"] == str(seq)


@pytest.mark.parametrize(
    "asked",
    [
        {"seq": 3}, {"seq": 7}, {"last_by_subj": "zz"}, {"next_by_subj": "zz"},
        {"next_by_subj": "s.0", "seq": 6}, {"start_time": LATER}, {"batch": 2, "seq": 7},
        {"batch": 2, "next_by_subj": "zz"},
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_found(full: Client, asked: dict[str, Any]) -> None:
    assert statuses(full, asked) == ["404 Message Not Found"]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"", "408 Empty Request"),
        (b"{}", "408 Empty Request"),
        (b"null", "408 Empty Request"),
        ({"batch": 2}, "408 Empty Request"),
        ({"no_hdr": True}, "408 Empty Request"),
        ({"up_to_seq": 2}, "408 Empty Request"),
        (b" ", "408 Malformed Request"),
        (b"{", "408 Malformed Request"),
        (b"[]", "408 Malformed Request"),
        ({"seq": "1"}, "408 Malformed Request"),
        ({"seq": -1}, "408 Malformed Request"),
        ({"seq": 2**70}, "408 Malformed Request"),
        ({"start_time": ""}, "408 Malformed Request"),
        ({"start_time": "yesterday"}, "408 Malformed Request"),
        ({"seq": 1, "last_by_subj": "s.0"}, "408 Bad Request"),
        ({"seq": 1, "start_time": STAMP}, "408 Bad Request"),
        ({"last_by_subj": "s.0", "next_by_subj": "s.0"}, "408 Bad Request"),
        ({"last_by_subj": "s.0", "start_time": STAMP}, "408 Bad Request"),
        ({"last_by_subj": "s.0", "batch": 2}, "408 Bad Request"),
        ({"multi_last": ["s.0"], "last_by_subj": "s.0"}, "408 Bad Request"),
        ({"multi_last": ["s.0"], "up_to_seq": 1, "up_to_time": STAMP}, "408 Bad Request"),
    ],
)
def test_a_request_that_makes_no_sense_is_told_so(full: Client, asked: Any, status: str) -> None:
    assert statuses(full, asked) == [status]


def test_a_higher_api_level_than_the_servers_is_refused(full: Client) -> None:
    for level in ("99", "x"):
        answer = full.request(
            "$JS.API.DIRECT.GET.S", {"seq": 1}, {"Nats-Required-Api-Level": level}
        )
        assert answer.status == "412 Required Api Level"


# -- batches -----------------------------------------------------------------------------------


def test_a_batch_counts_down_and_ends_with_a_mark(full: Client) -> None:
    one, two, end = ask(full, {"batch": 2, "seq": 2})
    assert one.fields["Nats-Sequence"] == "2"
    assert one.fields["Nats-Num-Pending"] == "3"
    assert one.fields["Nats-Last-Sequence"] == "0"
    assert two.fields["Nats-Sequence"] == "4"
    assert two.fields["Nats-Num-Pending"] == "2"
    assert two.fields["Nats-Last-Sequence"] == "2"
    assert end.header == (
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 4\r\n\r\n"
    )
    assert end.body == b""


@pytest.mark.parametrize(
    ("asked", "sequences"),
    [
        ({"batch": 100, "seq": 3}, [4, 5, 6]),
        ({"batch": 100, "next_by_subj": "s.0"}, [1, 5]),
        ({"batch": 100, "next_by_subj": "s.1", "seq": 3}, [4, 6]),
        ({"batch": 2, "start_time": STAMP}, [1, 2]),
        ({"batch": 9, "seq": 1, "max_bytes": 1}, [1]),
        ({"batch": 9, "seq": 1, "max_bytes": 30}, [1, 2]),
    ],
)
def test_a_batch_brings_what_matches(
    full: Client, asked: dict[str, Any], sequences: list[int]
) -> None:
    *messages, end = ask(full, asked)
    assert [int(message.fields["Nats-Sequence"]) for message in messages] == sequences
    assert end.status == "204 EOB"
    assert end.fields["Nats-Last-Sequence"] == str(sequences[-1])


def asked_while_behind(asked: bytes) -> tuple[Driver, Client, list[Message]]:
    """A client that takes nothing more for now and has asked for 800 messages of 10 kB; what it is
    sent all the same."""
    driver = Driver().start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "storage": "memory", "allow_direct": True})
    for _ in range(100):
        client.send(b"PUB S 10000\r\n%b\r\n" % (b"x" * 10_000) * 8)
    client.take()
    client.transport.backlog = 32 * 1024 * 1024
    client.publish("$JS.API.DIRECT.GET.S", asked, "_INBOX.t.big")
    return driver, client, client.take()


def test_a_large_batch_comes_in_pieces_and_waits_for_a_client_that_is_behind() -> None:
    driver, client, before = asked_while_behind(b'{"batch":1000,"seq":1}')
    assert 0 < len(before) < 800
    assert driver.engine.turn.ready == []
    client.transport.backlog = 0
    client.session.drained()
    driver.finish()
    after = client.take()
    assert len(before) + len(after) == 801
    assert after[-1].status == "204 EOB"
    assert after[-1].fields["Nats-Num-Pending"] == "0"


def test_a_batch_that_is_read_from_the_disk_waits_for_a_client_that_is_behind() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    for _ in range(100):
        client.send(b"PUB S 10000\r\n%b\r\n" % (b"x" * 10_000) * 8)
    client.take()
    disk.is_cold = True
    client.transport.backlog = 32 * 1024 * 1024
    client.publish("$JS.API.DIRECT.GET.S", b'{"batch":1000,"seq":1}', "_INBOX.t.big")
    before = client.take()
    assert len(before) < 200
    assert driver.engine.turn.ready == []
    client.transport.backlog = 0
    while len(before) < 801:
        client.session.drained()
        driver.finish()
        more = client.take()
        assert more
        before += more
    assert before[-1].status == "204 EOB"


# -- packed batches: docs/protocol/streams.md#packed-batches ------------------------------------

Row = tuple[int, bytes, bytes, bytes]  # sequence, subject, headers, body


def unpacked(answer: Message) -> list[Row]:
    """The messages in a packed answer, each of which has the time of all."""
    rows = rows_in(answer.body)
    assert len(rows) == int(answer.fields["Slipstream-Packed"])
    assert {time for _, time, *_ in rows} == {1_700_000_000 * SECOND}
    return [(sequence, subject, header, body) for sequence, _, subject, header, body in rows]


def rows_of(answers: list[Message]) -> list[Row]:
    """The messages in packed answers and others. Each says which one is before it."""
    rows: list[Row] = []
    last = 0
    for answer in answers:
        assert int(answer.fields["Nats-Last-Sequence"]) == last
        if "Slipstream-Packed" in answer.fields:
            rows += unpacked(answer)
        else:
            sequence, subject = answer.fields["Nats-Sequence"], answer.fields["Nats-Subject"]
            own = answer.header[: answer.header.index(b"Nats-Stream")] + b"\r\n"
            own = own if own.count(b":") else b""
            rows.append((int(sequence), subject.encode(), own, answer.body))
        last = rows[-1][0]
    return rows


def test_a_packed_batch_is_one_answer_and_the_same_end(full: Client) -> None:
    packed, end = ask(full, {"batch": 2, "seq": 2, "packed": True})
    assert packed.header == (
        b"NATS/1.0\r\nSlipstream-Packed: 2\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 0\r\n\r\n"
    )
    assert unpacked(packed) == [
        (2, b"s.1", b"NATS/1.0\r\nX: 1\r\n\r\n", b"body 2"),
        (4, b"s.1", b"NATS/1.0\r\nX: 3\r\n\r\n", b"body 4"),
    ]
    assert end.header == b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 4\r\n\r\n"


@pytest.mark.parametrize(
    "asked",
    [
        {"batch": 100, "seq": 1},
        {"batch": 100, "next_by_subj": "s.0"},
        {"batch": 2, "start_time": STAMP},
        {"batch": 9, "seq": 1, "max_bytes": 1},
        {"batch": 9, "seq": 1, "max_bytes": 30},
        {"batch": 9, "seq": 7},
    ],
)
def test_packed_or_not_a_batch_brings_the_same(full: Client, asked: dict[str, Any]) -> None:
    *plain, end = ask(full, asked)
    *packed, same_end = ask(full, asked | {"packed": True})
    assert rows_of(packed) == rows_of(plain)
    assert same_end.header == end.header
    assert len(packed) <= 1


@pytest.mark.parametrize(
    "asked",
    [{"seq": 2}, {"batch": 9, "seq": 1, "no_hdr": True}, {"multi_last": ["s.>"]}],
)
def test_what_is_no_batch_with_headers_is_not_packed(full: Client, asked: dict[str, Any]) -> None:
    plain, packed = ask(full, asked), ask(full, asked | {"packed": True})
    assert [(one.header, one.body) for one in packed] == [(one.header, one.body) for one in plain]


@pytest.mark.parametrize("is_cold", [False, True])
def test_large_messages_stay_alone_among_packed_ones(is_cold: bool) -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    bodies = [bytes([n % 256]) * (70_000 if n % 7 == 3 else n % 11 * 900) for n in range(300)]
    for body in bodies:
        client.send(b"PUB S %d\r\n%b\r\n" % (len(body), body))
    client.take()
    disk.is_cold = is_cold
    *answers, end = ask(client, {"batch": 1000, "seq": 1, "packed": True})
    assert rows_of(answers) == [(n, b"S", b"", body) for n, body in enumerate(bodies, 1)]
    assert end.fields["Nats-Num-Pending"] == "0"
    alone = [one for one in answers if "Nats-Sequence" in one.fields]
    assert [len(one.body) for one in alone] == [len(body) for body in bodies if len(body) > 65_535]
    assert all(len(one.body) < 320 * 1024 for one in answers)


def test_a_packed_answer_is_a_payload_at_most() -> None:
    driver = Driver(
        options=EngineOptions(server_name="here", jetstream=True, max_payload=10_000)
    ).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    for n in range(200):
        client.publish("S", bytes(n * 40))
    *answers, end = ask(client, {"batch": 1000, "seq": 1, "packed": True})
    assert [row[3] for row in rows_of(answers)] == [bytes(n * 40) for n in range(200)]
    assert all(len(one.header) + len(one.body) <= 10_000 for one in answers)
    assert end.fields["Nats-Num-Pending"] == "0"


def test_small_messages_are_packed_by_their_number(client: Client) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    client.send(b"PUB S 0\r\n\r\n" * 5000)
    *answers, end = ask(client, {"batch": 4999, "seq": 1, "packed": True})
    assert [answer.fields["Slipstream-Packed"] for answer in answers] == ["2048", "2048", "903"]
    assert [answer.fields["Nats-Num-Pending"] for answer in answers] == ["2952", "904", "1"]
    assert end.fields["Nats-Num-Pending"] == "1"


def test_a_message_published_as_a_packed_one_is_packed_as_it_is(client: Client) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    client.publish("S", b"body", headers={"Slipstream-Packed": "7"})
    (packed, _) = ask(client, {"batch": 9, "seq": 1, "packed": True})
    own = b"NATS/1.0\r\nSlipstream-Packed: 7\r\n\r\n"
    assert unpacked(packed) == [(1, b"S", own, b"body")]


def test_a_packed_batch_that_nobody_hears_asks_the_disk_once() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    for _ in range(3000):
        client.publish("S", b"x" * 1000)
    disk.is_cold = True
    before = disk.calls["pread"]
    client.publish(
        "$JS.API.DIRECT.GET.S", b'{"batch":3000,"seq":1,"packed":true}', "nobody.is.here"
    )
    assert disk.calls["pread"] - before <= 2


def test_a_packed_batch_waits_for_a_client_that_is_behind() -> None:
    driver, client, before = asked_while_behind(b'{"batch":1000,"seq":1,"packed":true}')
    assert 0 < len(rows_of(before)) < 800
    assert driver.engine.turn.ready == []
    client.transport.backlog = 0
    client.session.drained()
    driver.finish()
    *after, end = client.take()
    assert len(rows_of([*before, *after])) == 800
    assert end.status == "204 EOB"


# -- the last of each subject ------------------------------------------------------------------


def test_the_last_message_of_each_subject_comes_in_order_with_where_it_stopped(
    full: Client,
) -> None:
    one, two, end = ask(full, {"multi_last": ["s.0", "s.*"]})
    assert [message.fields["Nats-Sequence"] for message in (one, two)] == ["5", "6"]
    assert [message.fields["Nats-Num-Pending"] for message in (one, two)] == ["1", "0"]
    assert end.header == (
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 6\r\n"
        b"Nats-UpTo-Sequence: 6\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("options", "sequences", "up_to"),
    [
        ({"batch": 1}, [5], 6),
        ({"seq": 6}, [6], 6),
        ({"seq": 7}, [], 6),
        ({"up_to_seq": 4}, [1, 4], 4),
        ({"up_to_seq": 4, "seq": 2}, [4], 4),
        ({"up_to_time": STAMP}, [5, 6], 6),
        ({"start_time": LATER}, [5, 6], 6),
        ({"no_hdr": True}, [5, 6], 6),
        ({"max_bytes": 1}, [5], 6),
    ],
)
def test_the_last_messages_can_be_narrowed(
    full: Client, options: dict[str, Any], sequences: list[int], up_to: int
) -> None:
    *messages, end = ask(full, {"multi_last": ["s.>"], **options})
    assert [int(message.fields["Nats-Sequence"]) for message in messages] == sequences
    assert end.fields["Nats-UpTo-Sequence"] == str(up_to)


@pytest.mark.parametrize(
    "asked",
    [{"multi_last": ["zz"]}, {"multi_last": ["s.>"], "up_to_time": "2020-01-01T00:00:00Z"}],
)
def test_no_subject_is_no_results(full: Client, asked: dict[str, Any]) -> None:
    assert statuses(full, asked) == ["404 No Results"]


def test_too_many_subjects_are_refused(client: Client) -> None:
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    for i in range(1025):
        client.publish(f"s.{i}")
    assert statuses(client, {"multi_last": ["s.>"]}) == ["413 Too Many Results"]
    assert len(ask(client, {"multi_last": ["s.>"], "up_to_seq": 1024})) == 1025


# -- by subject --------------------------------------------------------------------------------


def test_the_subject_may_stand_in_the_calls_own_subject(full: Client) -> None:
    (message,) = ask(full, b"", ".s.0")
    assert message.fields["Nats-Sequence"] == "5"
    (bare,) = ask(full, {"no_hdr": True}, ".s.0")
    assert (bare.header, bare.body) == (b"", b"body 5")
    assert statuses(full, b"", ".zz") == ["404 Message Not Found"]
    assert statuses(full, {"seq": 1}, ".s.0") == ["408 Bad Request"]
    (one,) = ask(full, {"packed": True}, ".s.0")
    assert one.fields["Nats-Sequence"] == "5"


def test_only_a_stream_that_allows_it_answers(full: Client) -> None:
    config = {"name": "S", "subjects": ["s.>"]}
    full.api("STREAM.UPDATE.S", config)
    assert statuses(full, {"seq": 1}) == ["503"]
    full.api("STREAM.UPDATE.S", config | {"allow_direct": True})
    assert statuses(full, {"seq": 1}) == [""]
    full.api("STREAM.DELETE.S")
    assert statuses(full, {"seq": 1}) == ["503"]


def test_a_start_between_two_nanoseconds_apart_is_told_apart() -> None:
    driver = Driver().start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
    client.publish("S")
    driver.advance(1)
    client.publish("S")
    (message,) = ask(client, {"start_time": "2023-11-14T22:13:20.000000001Z"})
    assert message.fields["Nats-Sequence"] == "2"
    assert message.fields["Nats-Time-Stamp"] == "2023-11-14T22:13:20.000000001Z"


# -- STREAM.MSG.GET ----------------------------------------------------------------------------


def test_a_message_through_the_api_is_base64(full: Client) -> None:
    assert full.api("STREAM.MSG.GET.S", {"seq": 2}) == {
        "type": "io.nats.jetstream.api.v1.stream_msg_get_response",
        "message": {
            "subject": "s.1",
            "seq": 2,
            "hdrs": "TkFUUy8xLjANClg6IDENCg0K",
            "data": "Ym9keSAy",
            "time": STAMP,
        },
    }
    assert "hdrs" not in full.api("STREAM.MSG.GET.S", {"seq": 2, "no_hdr": True})["message"]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (b"", 10003), ({}, 10003), ({"batch": 1, "seq": 1}, 10003), ({"no_hdr": True}, 10003),
        ({"seq": 1, "last_by_subj": "s.0"}, 10003), ({"seq": 1, "start_time": STAMP}, 10003),
        ({"last_by_subj": "s.0", "next_by_subj": "s.0"}, 10003), ({"seq": 3}, 10037),
        ({"seq": 99}, 10037), ({"start_time": LATER}, 10037), ({"start_time": "x"}, 10025),
        ({"start_time": ""}, 10025), ({"bogus": 1}, 10025), ({"seq": -1}, 10025),
    ],
)  # fmt: skip
def test_a_get_through_the_api_that_finds_nothing(full: Client, asked: Any, error: int) -> None:
    assert full.api("STREAM.MSG.GET.S", asked)["error"]["err_code"] == error
