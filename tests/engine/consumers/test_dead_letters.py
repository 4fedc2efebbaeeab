"""Dead letters: what is given up or terminated is stored where the consumer says, and settled."""

import json
from random import Random
from typing import Any

import pytest

from slipstream.errors import DiskFullError
from slipstream.log.commit_log import FILE_BYTES
from slipstream.testing.driver import Driver, Message, encode
from slipstream.testing.simulated_disk import SimulatedDisk

SECOND = 1_000_000_000


def texts(told: dict[str, Any]) -> str:
    """What an explanation says."""
    return " ".join(reason["text"] for reason in told["reasons"])


class Desk:
    """A stream S on s.>, dead letters in D on d.>, and clients."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        source: dict[str, Any] | None = None,
        target: dict[str, Any] | None = None,
        log_bytes: int = FILE_BYTES,
    ) -> None:
        self.disk = disk or SimulatedDisk(Random(1))
        self.log_bytes = log_bytes
        self.pulls = 0
        self.start()
        self.make("S", subjects=["s.>"], **(source or {}))
        self.make("D", subjects=["d.>"], **(target or {}))

    def start(self) -> None:
        """A server on what the disk has."""
        self.driver = Driver(self.disk, log_bytes=self.log_bytes).start()
        self.client = self.driver.client()

    def crash(self) -> None:
        """The power fails, and the server comes back."""
        self.disk.crash()
        self.disk.heal()
        self.start()

    def make(self, name: str, **config: Any) -> None:
        answer = self.client.api(f"STREAM.CREATE.{name}", {"name": name, **config})
        assert "error" not in answer, answer

    def try_consumer(self, name: str = "c", stream: str = "S", **config: Any) -> dict[str, Any]:
        full = {"durable_name": name, "ack_policy": "explicit", "dead_letter": "d.x", **config}
        body = {"stream_name": stream, "config": full}
        answer: dict[str, Any] = self.client.api(f"CONSUMER.CREATE.{stream}.{name}", body)
        return answer

    def consumer(self, name: str = "c", stream: str = "S", **config: Any) -> dict[str, Any]:
        answer = self.try_consumer(name, stream, **config)
        assert "error" not in answer, answer
        return answer

    def pull(self, name: str = "c", stream: str = "S", batch: int = 1) -> list[Message]:
        """What is delivered at once."""
        self.pulls += 1
        inbox = f"pull.{self.pulls}"
        self.client.subscribe(inbox, 100 + self.pulls)
        body = json.dumps({"batch": batch, "no_wait": True}).encode()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", body, inbox)
        return [m for m in self.client.take() if m.reply.startswith("$JS.ACK")]

    def letters(self, stream: str = "D") -> list[Message]:
        """What a stream shows, in order."""
        return list(self.client.messages(stream).values())

    def info(self, name: str = "c", stream: str = "S") -> dict[str, Any]:
        found: dict[str, Any] = self.client.api(f"CONSUMER.INFO.{stream}.{name}")
        return found

    def why(self, name: str = "c", stream: str = "S") -> dict[str, Any]:
        answer: dict[str, Any] = self.client.request(
            f"$SLIPSTREAM.CONSUMER.EXPLAIN.{stream}.{name}"
        ).json()
        return answer

    def messages(self, stream: str = "S") -> int:
        return int(self.client.api(f"STREAM.INFO.{stream}")["state"]["messages"])


def test_a_terminated_message_is_a_dead_letter_with_all_that_it_had() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a", b"body", Kind="order")
    (message,) = desk.pull()
    assert desk.client.ask(message.reply, b"+TERM no such customer")
    (letter,) = desk.letters()
    assert (letter.subject, letter.body) == ("d.x", b"body")
    fields = letter.fields
    assert fields.pop("Slipstream-Dead-Time").startswith("2023-")
    assert fields.pop("Slipstream-Dead-Id")
    assert fields == {
        "Slipstream-Dead-Letter": "terminated",
        "Slipstream-Dead-Reason": "no such customer",
        "Slipstream-Dead-Deliveries": "1",
        "Slipstream-Dead-Stream": "S",
        "Slipstream-Dead-Consumer": "c",
        "Slipstream-Dead-Subject": "s.a",
        "Slipstream-Dead-Sequence": "1",
        "Kind": "order",
    }
    info = desk.info()
    assert info["num_ack_pending"] == 0
    assert info["ack_floor"]["stream_seq"] == 1
    assert info["config"]["dead_letter"] == "d.x"


@pytest.mark.parametrize("backoff", [[], [SECOND, 2 * SECOND]])
def test_a_message_that_reaches_max_deliver_is_a_dead_letter(backoff: list[int]) -> None:
    desk = Desk(source={"retention": "workqueue"})
    desk.consumer(max_deliver=2, ack_wait=SECOND, backoff=backoff)
    desk.client.store("s.a", b"poison")
    for _ in range(2):
        assert desk.pull()
        desk.driver.advance(3 * SECOND)
    assert not desk.pull()
    (letter,) = desk.letters()
    assert letter.fields["Slipstream-Dead-Letter"] == "max_deliver"
    assert letter.fields["Slipstream-Dead-Deliveries"] == "2"
    assert desk.messages() == 0
    assert desk.info()["num_redelivered"] == 0


def test_a_refusal_of_the_last_delivery_makes_a_dead_letter_at_once() -> None:
    desk = Desk()
    desk.consumer(max_deliver=1)
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"-NAK")
    assert len(desk.letters()) == 1


def test_a_lower_limit_makes_dead_letters_of_what_is_beyond_it() -> None:
    desk = Desk()
    desk.consumer(max_deliver=5, ack_wait=SECOND)
    desk.client.store("s.a")
    for _ in range(3):
        assert desk.pull()
        desk.driver.advance(2 * SECOND)
    desk.consumer(max_deliver=2, ack_wait=SECOND)
    assert len(desk.letters()) == 1
    assert not desk.pull()


def is_delivered_again(desk: Desk, within: int = 40 * SECOND) -> bool:
    desk.driver.advance(within)
    return bool(desk.pull())


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
@pytest.mark.parametrize("powers_off", [True, False])
@pytest.mark.parametrize("steps", range(12))
def test_after_a_crash_at_any_point_it_is_delivered_or_a_dead_letter(
    steps: int, powers_off: bool, retention: str
) -> None:
    for seed in range(6):
        desk = Desk(SimulatedDisk(Random(seed)), {"retention": retention})
        desk.consumer()
        desk.client.store("s.a", b"1")
        desk.client.store("s.a", b"2")
        message, _ = desk.pull(batch=2)
        desk.driver.advance(SECOND)
        desk.driver.runner.hold()
        desk.client.publish(message.reply, b"+TERM", "_INBOX.t.0")
        answered = False
        for step in range(steps):
            desk.driver.runner.step(ahead=seed % 2 == 1)
            desk.driver.finish()
            answered = answered or any(m.subject == "_INBOX.t.0" for m in desk.client.take())
            if step == 3:
                desk.driver.advance(SECOND)
        if not powers_off:
            for item in desk.driver.runner.waiting:
                if item.batch is not None and not item.ran and seed % 3:
                    item.batch.flush()
            desk.start()
        else:
            desk.crash()
        letters = desk.letters()
        assert len(letters) <= 1
        assert not answered or letters
        assert [m.body for m in letters] == [b"1"] * len(letters)
        desk.driver.advance(40 * SECOND)
        delivered = [m.body for m in desk.pull(batch=5)]
        assert sorted(delivered + [m.body for m in letters]) == [b"1", b"2"]
        assert desk.messages() == (2 if retention == "limits" else len(delivered))


def test_nobody_sees_a_dead_letter_before_it_is_settled() -> None:
    desk = Desk(target={"allow_direct": True})
    desk.consumer()
    desk.consumer("reader", "D", dead_letter="")
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.driver.runner.hold()
    desk.client.publish(message.reply, b"+TERM")
    letters = desk.driver.js.streams["S"].consumers["c"].letters
    unseen = 0
    asked = []
    while desk.driver.runner.step():
        desk.driver.finish()
        if desk.driver.js.streams["D"].log.messages and letters.dying:
            unseen += 1
            for call, body in (("DIRECT.GET.D.d.x", b""), ("STREAM.MSG.GET.D", {"seq": 1})):
                assert not desk.client.ask(f"$JS.API.{call}", body), "it waits"
                asked.append(desk.client.inbox)
            assert not desk.pull("reader", "D")
    answers = {message.subject for message in desk.client.take()}
    assert unseen
    assert answers >= set(asked)
    assert len(desk.letters()) == 1
    assert len(desk.pull("reader", "D")) == 1


def test_who_publishes_beside_dead_letters_reads_what_was_stored() -> None:
    desk = Desk(target={"allow_direct": True})
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM")
    seq = desk.client.store("d.other", b"plain")["seq"]
    found = desk.client.api("STREAM.MSG.GET.D", {"seq": seq})
    assert found["message"]["subject"] == "d.other"


def test_an_acknowledgement_in_time_leaves_no_dead_letter() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.driver.advance(SECOND)
    desk.driver.runner.hold()
    desk.client.publish(message.reply, b"+TERM")
    desk.client.publish(message.reply, b"+ACK")
    desk.driver.runner.held = False
    desk.driver.runner.release()
    desk.driver.finish()
    desk.driver.advance(SECOND)
    assert not desk.letters()
    assert desk.info()["num_ack_pending"] == 0
    desk.crash()
    assert not desk.letters()
    assert not is_delivered_again(desk)


def test_a_message_that_no_stream_takes_waits_and_why_says_so() -> None:
    desk = Desk()
    desk.consumer(max_ack_pending=1)
    desk.client.store("s.a")
    desk.client.store("s.b")
    (message,) = desk.pull()
    desk.client.api("STREAM.DELETE.D")
    desk.client.publish(message.reply, b"+TERM")
    assert not desk.pull()
    told = desk.why()
    assert told["facts"]["dead_letters"]["waiting"] == 1
    assert "no stream of the account stores the subject d.x" in texts(told)
    desk.crash()
    assert is_delivered_again(desk), "it is to be delivered as before"


def test_a_stream_that_comes_later_takes_what_waits() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.api("STREAM.DELETE.D")
    desk.client.publish(message.reply, b"+TERM", "_INBOX.t.9")
    desk.driver.advance(5 * SECOND)
    assert not [m for m in desk.client.take() if m.subject == "_INBOX.t.9"]
    desk.make("E", subjects=["d.*"])
    desk.driver.advance(2 * SECOND)
    assert [m for m in desk.client.take() if m.subject == "_INBOX.t.9"], "answered once it is"
    assert len(desk.letters("E")) == 1
    assert desk.why()["facts"]["dead_letters"]["waiting"] == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"max_msgs": 1, "discard": "new"}, "maximum messages exceeded"),
        ({"max_msg_size": 20}, "max_msg_size of D is less"),
        ({"max_bytes": 60}, "max_bytes of D is less"),
        ({"retention": "interest"}, "no consumer wants the subject"),
    ],
)
def test_a_stream_that_refuses_is_named_and_the_message_kept(
    target: dict[str, Any], said: str
) -> None:
    desk = Desk(target=target)
    desk.client.store("d.other", b"")
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM")
    told = desk.why()
    assert said in told["facts"]["dead_letters"]["problem"]
    assert desk.info()["num_ack_pending"] == 1
    update = {"name": "D", "subjects": ["d.>"], **target}
    update |= {name: -1 for name in ("max_msgs", "max_msg_size", "max_bytes") if name in target}
    if "retention" in target:
        desk.consumer("r", "D", dead_letter="")
    else:
        assert "error" not in desk.client.api("STREAM.UPDATE.D", update)
    desk.driver.advance(2 * SECOND)
    assert [m.subject for m in desk.letters()][-1] == "d.x"
    assert desk.info()["num_ack_pending"] == 0


def test_a_sealed_stream_is_refused_at_once_and_later() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.api("STREAM.UPDATE.D", {"name": "D", "subjects": ["d.>"], "sealed": True})
    desk.client.publish(message.reply, b"+TERM")
    assert "sealed" in texts(desk.why())
    assert "sealed" in desk.try_consumer("other")["error"]["description"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"dead_letter": "d.*"}, "without wildcards"),
        ({"dead_letter": "d..x"}, "without wildcards"),
        ({"dead_letter": "nowhere"}, "no stream stores the subject nowhere"),
        ({"ack_policy": "all"}, "ack policy explicit"),
        ({"ack_policy": "none"}, "ack policy explicit"),
        ({"max_ack_pending": -1}, "max ack pending"),
        ({"max_ack_pending": 100_000}, "max ack pending"),
        ({"dead_letter": "s.dead"}, "its own dead letters"),
        ({"dead_letter": "s.dead", "filter_subject": "s.*"}, "its own dead letters"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(config: dict[str, Any], said: str) -> None:
    desk = Desk()
    answer = desk.try_consumer(**config)
    assert answer["error"]["err_code"] == 10012
    assert said in answer["error"]["description"]


def test_a_stream_may_keep_the_dead_letters_of_its_own_consumers() -> None:
    desk = Desk()
    desk.consumer(filter_subject="s.a", dead_letter="s.dead")
    desk.client.store("s.a", b"1")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM")
    assert [m.subject for m in desk.letters("S")] == ["s.a", "s.dead"]
    assert not desk.pull()


def test_dead_letters_that_would_come_back_by_way_of_others_are_refused() -> None:
    desk = Desk()
    desk.consumer(dead_letter="d.x")
    answer = desk.try_consumer("back", "D", dead_letter="s.back")
    assert "its own dead letters" in answer["error"]["description"]
    desk.consumer("back", "D", dead_letter="s.back", filter_subject="d.other")


def test_a_dead_letter_of_a_dead_letter_has_both_steps() -> None:
    desk = Desk()
    desk.make("E", subjects=["e"])
    desk.consumer()
    desk.consumer("next", "D", dead_letter="e")
    desk.client.store("s.a", b"1", Kind="order")
    for name, stream in (("c", "S"), ("next", "D")):
        (message,) = desk.pull(name, stream)
        desk.client.publish(message.reply, b"+TERM")
    (letter,) = desk.letters("E")
    lines = letter.header.decode().split("\r\n")
    subjects = [line for line in lines if line.startswith("Slipstream-Dead-Subject")]
    assert subjects == ["Slipstream-Dead-Subject: d.x", "Slipstream-Dead-Subject: s.a"]
    assert lines[-3] == "Kind: order"


def test_headers_near_the_limit_leave_out_the_longest_and_name_it() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a", b"1", Long="x" * 65_000, Kind="order")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM " + b"y" * 5_000)
    (letter,) = desk.letters()
    assert letter.fields["Slipstream-Dead-Left-Out"] == "Long"
    assert letter.fields["Kind"] == "order"
    assert len(letter.fields["Slipstream-Dead-Reason"]) == 1024
    assert letter.body == b"1"


def test_what_a_publisher_asked_of_its_own_stream_does_nothing_to_the_dead_letters() -> None:
    desk = Desk(source={"allow_rollup_hdrs": True}, target={"allow_rollup_hdrs": True})
    desk.consumer()
    for number in (1, 2):
        fields = {"Nats_Rollup": "all", "Nats_Msg_Id": f"{number}", "Nats_Expected_Stream": "S"}
        desk.client.store(f"s.{number}", b"%d" % number, **fields)
        (message,) = desk.pull()
        desk.client.publish(message.reply, b"+TERM")
    assert [m.body for m in desk.letters()] == [b"1", b"2"]


def test_the_field_may_be_taken_away_changed_and_given() -> None:
    desk = Desk()
    desk.consumer()
    for _ in range(3):
        desk.client.store("s.a")
    first, second, third = desk.pull(batch=3)
    desk.client.api("STREAM.DELETE.D")
    desk.client.publish(first.reply, b"+TERM")
    desk.consumer(dead_letter="")
    assert desk.info()["num_ack_pending"] == 2, "terminated as without the field"
    desk.make("E", subjects=["e.>"])
    desk.consumer(dead_letter="e.x")
    desk.client.publish(second.reply, b"+TERM")
    assert [m.subject for m in desk.letters("E")] == ["e.x"]
    desk.consumer(dead_letter="e.y")
    desk.client.publish(third.reply, b"+TERM")
    assert [m.subject for m in desk.letters("E")] == ["e.x", "e.y"]


@pytest.mark.parametrize("source", ["file", "memory"])
@pytest.mark.parametrize("target", ["file", "memory"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_memory_takes_part(source: str, target: str, in_memory: bool) -> None:
    desk = Desk(None, {"storage": source, "retention": "workqueue"}, {"storage": target})
    desk.consumer(mem_storage=in_memory)
    desk.client.store("s.a")
    (message,) = desk.pull()
    assert desk.client.ask(message.reply, b"+TERM")
    assert len(desk.letters()) == 1
    assert desk.messages() == 0


def test_relaxed_durability_of_the_target_is_no_excuse() -> None:
    desk = Desk(target={"persist_mode": "async"})
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM", "_INBOX.t.7")
    desk.driver.advance(SECOND)
    assert [m for m in desk.client.take() if m.subject == "_INBOX.t.7"]
    desk.crash()
    assert len(desk.letters()) == 1
    assert not is_delivered_again(desk)


def test_a_reset_delivers_again_and_keeps_the_dead_letter() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM")
    desk.client.api("CONSUMER.RESET.S.c", {"seq": 1})
    assert len(desk.pull()) == 1
    desk.crash()
    assert len(desk.letters()) == 1, "what was settled once stays"


def test_what_was_restored_under_the_subject_is_not_taken_back() -> None:
    desk = Desk()
    desk.consumer()
    for _ in range(2):
        desk.client.store("s.a")
        (message,) = desk.pull()
        desk.client.publish(message.reply, b"+TERM")
    first = desk.letters()[0]
    desk.client.publish("d.x", first.body, headers=first.fields)
    desk.driver.finish()
    desk.crash()
    assert len(desk.letters()) == 3


def test_many_at_once_are_all_stored_once() -> None:
    desk = Desk(source={"retention": "workqueue"})
    desk.consumer(max_ack_pending=2000)
    for _ in range(1500):
        desk.client.publish("s.a", b"x")
    for message in desk.pull(batch=1500):
        desk.client.publish(message.reply, b"+TERM")
    numbers = sorted(int(m.fields["Slipstream-Dead-Sequence"]) for m in desk.letters())
    assert numbers == list(range(1, 1501))
    assert desk.messages() == 0


def test_the_positions_of_many_consumers_need_not_fit_into_one_entry() -> None:
    desk = Desk(log_bytes=64 * 1024)
    names = [f"c{n}" for n in range(60)]
    for name in names:
        desk.consumer(name)
    for _ in range(40):
        desk.client.publish("s.a", b"x")
    out = [desk.pull(name, batch=40) for name in names]
    desk.client.send(b"".join(encode(messages[7].reply, b"+TERM") for messages in out))
    desk.driver.advance(3 * SECOND)
    assert sorted(m.fields["Slipstream-Dead-Consumer"] for m in desk.letters()) == sorted(names)
    desk.crash()
    assert [desk.info(name)["num_ack_pending"] for name in names] == [39] * len(names)


def test_a_failed_disk_of_the_target_keeps_the_message() -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.store("d.first")
    desk.driver.runner.hold()
    desk.client.publish(message.reply, b"+TERM")
    desk.driver.settle_log()
    desk.driver.runner.release(OSError(5, "broken"))
    desk.driver.runner.held = False
    desk.driver.finish()
    assert "broken" in desk.why()["facts"]["dead_letters"]["problem"]
    desk.crash()
    again = is_delivered_again(desk)
    assert again != any(m.subject == "d.x" for m in desk.letters())
    assert again


def test_without_the_field_a_message_is_given_up_as_ever() -> None:
    desk = Desk()
    desk.consumer(dead_letter="", max_deliver=1, ack_wait=SECOND)
    desk.client.store("s.a")
    desk.pull()
    desk.driver.advance(2 * SECOND)
    assert not desk.letters()
    assert [one["seq"] for one in desk.why()["facts"]["exhausted"]] == [1]
    assert "dead_letter" not in desk.info()["config"]


def test_one_that_is_taken_back_does_not_hold_up_or_undo_the_others() -> None:
    desk = Desk()
    desk.consumer(max_ack_pending=50)
    for number in range(30):
        desk.client.store("s.a", b"%d" % number)
    messages = desk.pull(batch=30)
    desk.driver.advance(SECOND)
    desk.driver.runner.hold()
    for number, message in enumerate(messages):
        desk.client.publish(message.reply, b"+TERM")
        if number % 3 == 0:
            desk.client.publish(message.reply, b"+ACK")
        if number % 5 == 0:
            desk.driver.runner.step()
            desk.driver.finish()
    while desk.driver.runner.step():
        desk.driver.finish()
        desk.driver.advance(SECOND // 20)
    desk.driver.advance(SECOND)
    while desk.driver.runner.step():
        desk.driver.finish()
    dead = {int(m.body) for m in desk.letters()}
    assert dead >= {number for number in range(30) if number % 3}
    assert len(desk.letters()) == len(dead)
    assert desk.info()["num_ack_pending"] == 0
    desk.crash()
    assert {int(m.body) for m in desk.letters()} == dead


class Walk:
    """The same random calls, with or without dead letters; what clients were sent."""

    def __init__(self, seed: int, dead_letter: str) -> None:
        random = Random(seed)
        retention = random.choice(("limits", "workqueue"))
        self.desk = Desk(source={"retention": retention})
        config: dict[str, Any] = {
            "max_deliver": random.choice((-1, 1, 2, 3)),
            "ack_wait": SECOND,
            "max_ack_pending": random.choice((1, 3, 100)),
            "backoff": random.choice(([], [SECOND])),
        }
        self.desk.consumer(dead_letter=dead_letter, **config)
        self.sent: list[list[tuple[int, str]]] = []
        out: list[Message] = []
        for _ in range(80):
            kind = random.choice(("publish", "pull", "pull", "answer", "answer", "time"))
            if kind == "publish":
                self.desk.client.store("s.a", b"x")
            elif kind == "pull":
                batch = random.randint(1, 4)
                found = self.desk.pull(batch=batch)
                out += found
                self.sent.append([place(message) for message in found])
            elif kind == "answer" and out:
                message = out.pop(random.randrange(len(out)))
                body = random.choice((b"", b"+ACK", b"-NAK", b"+TERM", b"+TERM why", b"+WPI"))
                self.desk.client.publish(message.reply, body)
            elif kind == "time":
                self.desk.driver.advance(random.choice((1, 6)) * SECOND // 5)


def place(message: Message) -> tuple[int, str]:
    """Which delivery of which message it is, and the number of it."""
    words = message.reply.split(".")
    return int(words[5]), words[4]


@pytest.mark.parametrize("seed", range(12))
def test_who_consumes_sees_no_difference(seed: int) -> None:
    assert Walk(seed, "d.x").sent == Walk(seed, "").sent


def test_a_consumer_of_a_mirror_has_dead_letters() -> None:
    desk = Desk()
    desk.make("M", mirror={"name": "S"})
    desk.client.store("s.a", b"1")
    desk.driver.advance(SECOND)
    desk.consumer("m", "M")
    (message,) = desk.pull("m", "M")
    desk.client.publish(message.reply, b"+TERM")
    (letter,) = desk.letters()
    assert letter.fields["Slipstream-Dead-Stream"] == "M"
    assert letter.fields["Slipstream-Dead-Subject"] == "s.a"
    assert desk.messages("M") == 1


def test_a_consumer_with_priority_groups_has_dead_letters() -> None:
    desk = Desk()
    desk.consumer(priority_policy="overflow", priority_groups=["A"], max_deliver=1)
    desk.client.store("s.a")
    desk.client.subscribe("to", 50)
    asked = json.dumps({"batch": 1, "group": "A"}).encode()
    desk.client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", asked, "to")
    (message,) = [m for m in desk.client.take() if m.reply]
    desk.client.publish(message.reply, b"-NAK")
    assert len(desk.letters()) == 1


def test_a_push_consumer_has_dead_letters() -> None:
    desk = Desk()
    desk.consumer(deliver_subject="to", max_deliver=1, ack_wait=SECOND)
    desk.client.subscribe("to", 50)
    desk.client.store("s.a", b"1")
    desk.driver.advance(2 * SECOND)
    assert [m.body for m in desk.letters()] == [b"1"]


def test_what_its_filters_match_no_longer_still_becomes_a_dead_letter() -> None:
    desk = Desk()
    desk.consumer(filter_subject="s.a")
    desk.client.store("s.a", b"1")
    (message,) = desk.pull()
    desk.consumer(filter_subject="s.b")
    desk.client.publish(message.reply, b"+TERM")
    assert [m.body for m in desk.letters()] == [b"1"]


def test_the_others_of_an_interest_stream_still_get_the_message() -> None:
    desk = Desk(source={"retention": "interest"})
    desk.consumer()
    desk.consumer("other", dead_letter="")
    desk.client.store("s.a", b"1")
    (message,) = desk.pull()
    assert desk.client.ask(message.reply, b"+TERM")
    assert desk.messages() == 1
    (message,) = desk.pull("other")
    desk.client.publish(message.reply, b"")
    assert desk.messages() == 0
    assert len(desk.letters()) == 1


def test_a_dead_letter_lives_as_long_as_its_message_where_there_are_ttls() -> None:
    desk = Desk(source={"allow_msg_ttl": True}, target={"allow_msg_ttl": True})
    desk.consumer()
    desk.client.store("s.a", b"1", Nats_TTL="10s")
    (message,) = desk.pull()
    desk.client.publish(message.reply, b"+TERM")
    assert len(desk.letters()) == 1
    desk.driver.advance(20 * SECOND)
    assert not desk.letters()


def test_the_subject_may_be_mapped() -> None:
    desk = Desk(target={"subject_transform": {"src": "d.*", "dest": "mapped.{{wildcard(1)}}"}})
    desk.consumer()
    for _ in range(2):
        desk.client.store("s.a")
        (message,) = desk.pull()
        desk.client.publish(message.reply, b"+TERM")
    assert [m.subject for m in desk.letters()] == ["mapped.x", "mapped.x"]
    assert desk.why()["facts"]["dead_letters"]["stored"] == 2


def test_an_ephemeral_consumer_stays_while_something_waits() -> None:
    desk = Desk()
    desk.consumer(inactive_threshold=2 * SECOND)
    desk.client.store("s.a")
    (message,) = desk.pull()
    desk.client.api("STREAM.DELETE.D")
    desk.client.publish(message.reply, b"+TERM")
    desk.driver.advance(60 * SECOND)
    assert desk.why()["facts"]["dead_letters"]["waiting"] == 1
    desk.make("D", subjects=["d.>"])
    desk.driver.advance(2 * SECOND)
    assert len(desk.letters()) == 1
    desk.driver.advance(60 * SECOND)
    assert "error" in desk.info()


def test_a_deleted_consumer_leaves_its_dead_letters() -> None:
    desk = Desk()
    desk.consumer()
    for _ in range(2):
        desk.client.store("s.a")
    first, second = desk.pull(batch=2)
    desk.client.publish(first.reply, b"+TERM")
    desk.driver.runner.hold()
    desk.client.publish(second.reply, b"+TERM")
    desk.client.ask("$JS.API.CONSUMER.DELETE.S.c")
    desk.driver.runner.held = False
    desk.driver.runner.release()
    desk.driver.finish()
    desk.driver.advance(2 * SECOND)
    assert len(desk.letters()) >= 1
    desk.crash()
    assert len(desk.letters()) >= 1


def test_an_update_is_checked_like_a_creation() -> None:
    desk = Desk()
    desk.consumer(dead_letter="")
    answer = desk.try_consumer(dead_letter="nowhere")
    assert "no stream stores the subject nowhere" in answer["error"]["description"]
    assert "dead_letter" not in desk.info()["config"]
    assert desk.try_consumer(dead_letter=7)["error"]["err_code"] == 10025


def test_an_orderly_stop_in_the_middle_keeps_one_of_both() -> None:
    for steps in range(6):
        desk = Desk()
        desk.consumer()
        desk.client.store("s.a")
        (message,) = desk.pull()
        desk.driver.runner.hold()
        desk.client.publish(message.reply, b"+TERM")
        for _ in range(steps):
            desk.driver.runner.step()
            desk.driver.finish()
        desk.driver.runner.held = False
        desk.driver.stop()
        desk.start()
        assert is_delivered_again(desk) != bool(desk.letters())


def test_a_commit_log_without_room_holds_up_nobody_else() -> None:
    desk = Desk()
    desk.consumer()
    for _ in range(2):
        desk.client.store("s.a")
    first, second = desk.pull(batch=2)
    desk.client.publish(first.reply, b"+TERM")
    state = desk.driver.js.state
    make_room = state.make_room

    def refuse(size: int) -> None:
        raise DiskFullError("there is no room")

    state.make_room = refuse  # type: ignore[method-assign]
    desk.client.publish(second.reply, b"+TERM")
    desk.client.store("d.other", b"plain")
    desk.driver.advance(3 * SECOND)
    assert [m.subject for m in desk.letters()] == ["d.x", "d.other"]
    assert "there is no room" in texts(desk.why())
    state.make_room = make_room  # type: ignore[method-assign]
    desk.driver.advance(3 * SECOND)
    assert [m.subject for m in desk.letters()] == ["d.x", "d.other", "d.x"]
    desk.crash()
    assert [m.subject for m in desk.letters()] == ["d.x", "d.other", "d.x"]
    assert not is_delivered_again(desk)


@pytest.mark.parametrize("steps", range(8))
def test_a_position_that_waits_for_a_removal_does_not_undo_a_dead_letter(steps: int) -> None:
    desk = Desk()
    desk.consumer()
    desk.client.store("s.a", b"deleted")
    desk.client.store("s.a", b"terminated")
    _, second = desk.pull(batch=2)
    desk.driver.advance(SECOND)
    desk.driver.runner.hold()
    delete = json.dumps({"seq": 1, "no_erase": True}).encode()
    desk.client.publish("$JS.API.STREAM.MSG.DELETE.S", delete)
    desk.driver.advance(SECOND // 5)
    desk.client.publish(second.reply, b"+TERM")
    for _ in range(steps):
        run_last_of(desk, "S")
    desk.driver.runner.held = False
    desk.driver.runner.release()
    desk.driver.finish()
    desk.make("X")  # what is still to be kept goes into the same entry of the commit log
    desk.crash()
    is_letter = bool(desk.letters())
    desk.driver.advance(40 * SECOND)
    assert (b"terminated" in [message.body for message in desk.pull(batch=2)]) != is_letter


def run_last_of(desk: Desk, stream: str) -> None:
    """Do what the disk has to do next, the batches of one stream after all others."""
    waiting = desk.driver.runner.waiting
    source = desk.driver.js.streams[stream]
    others = [item for item in waiting if getattr(item.job, "stream", None) is not source]
    for item in (others or list(waiting))[:1]:
        waiting.remove(item)
        item.run()
        item.finish()
        desk.driver.finish()
