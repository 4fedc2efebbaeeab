"""The whole engine under a seed: clients, time, a disk, crashes; and a ledger that watches.

One `Simulation` is one life of a stream with consumers. At each step something happens by chance:
a publish, a pull, an acknowledgement, time goes by, the disk gets a little further, the power
fails. Now and then everything comes to rest, and what clients were promised is compared with what
there is (`ledger`). The same seed gives the same life, so a violation can be looked at again:

    Simulation(seed=4711).run(steps=400)

Parts can be replaced to plant faults or to go further: the disk, the runner, the weights of what
happens (`Simulation.moves`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slipstream.engine.commit.commit import OWN_SYNCS_MAX
from slipstream.log.commit_entry import HEAD_SIZE
from slipstream.log.record import FRONT, MESSAGE, SKIP, encode
from slipstream.log.segment import HEADER_SIZE, decode_header, first_format_salt, scan_records
from slipstream.model.durations import SECOND
from slipstream.model.header_names import NATS_MSG_ID, NATS_ROLLUP, NATS_TTL
from slipstream.testing.driver import BEGIN, Client, Driver, HandRunner, Message
from slipstream.testing.driver import encode as encode_publish
from slipstream.testing.invariants import check_invariants
from slipstream.testing.ledger import Ledger, Published, Reader, ViolationError
from slipstream.testing.looks import Looks, Trust
from slipstream.testing.neighbour import NEIGHBOUR, SUBJECT, Neighbour
from slipstream.testing.newcomers import Newcomers
from slipstream.testing.simulated_disk import SimulatedDisk
from slipstream.wire.buffer import OutBuffer

STREAM = "S"
SUBJECTS = ("s.a", "s.b", "s.c.x", "s.c.y")
ACK_WAIT = 5 * SECOND
WINDOW = 120 * SECOND
PLENTY = 1 << 40  # bytes of a disk that is not full
HISTORY_SHOWN = 30
DEAD = "DEAD"  # takes the dead letters, where there are any
AGAIN = 6 * SECOND // 5  # after which what could not be stored as one was offered again
LOOKS = 0.15  # of moves are followed by a look at the stream or a consumer
GATHERED = 0.2  # of turns that store something leave it to the next one
ROUNDS_MAX = 20  # of these, after which all that is stored has to be committed or taken back
LATE_MAX = 2 * SECOND  # after which an expired message is gone while the server runs
GUESSED_SALT = 0  # what somebody tries who does not know a segment's secret


@dataclass
class Worker:
    """A client that pulls for one consumer."""

    client: Client
    reader: Reader
    requests: dict[str, int] = field(default_factory=dict)  # messages still to come, by sid
    confirming: dict[str, int] = field(default_factory=dict)  # sequence by inbox
    replies: dict[int, str] = field(default_factory=dict)  # where to acknowledge, by sequence


class Simulation:
    """See the module's text."""

    def __init__(
        self,
        seed: int,
        disk: SimulatedDisk | None = None,
        runner: Callable[[], HandRunner] = HandRunner,
        damage: bool = False,
        trouble: bool = False,
        ttls: bool = False,
        ends: bool = False,
        letters: bool = False,
        cold: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.disk = disk or SimulatedDisk(Random(seed + 1))
        self.disk.is_cold = cold
        self.history: list[str] = []
        self.crashes = 0
        self._committer = runner
        self._damage = damage
        self._ttls = ttls
        self._letters = letters
        self._count = 0
        self._waiting: dict[str, Published] = {}  # publishes by inbox
        self._operations: tuple[str, ...] = ("sync", "sync", "append", "rename", "remove")
        self._copies: set[bytes] = set()  # bodies of records that the stream's own files have
        self._removing: dict[str, set[int]] = {}  # sequences to be removed, by inbox
        self._describing: dict[str, str] = {}  # descriptions that the stream is to have, by inbox
        self._descriptions = [""]  # that it may have: the last one answered, and attempts since
        # Whether a consumer may be there, with the number of the request: from the last answer on.
        self._possible: dict[str, list[tuple[int, bool]]] = {}
        self._changing: dict[str, tuple[str, int]] = {}  # name and number of a request, by inbox
        self._segment_bytes = self.random.choice((1_000, 4_000, 1 << 20))
        self._log_bytes = self.random.choice((50_000, 1 << 20))
        self.workers: dict[str, Worker] = {}
        self.neighbour = Neighbour(Random(seed + 2))
        self.newcomers = Newcomers(Random(seed + 3))
        self._gathering = Random(seed + 4)
        self.looks = Looks(Random(seed + 5))
        self._own_syncs = Random(seed + 6)
        self.driver = self._begin(BEGIN)
        self._awake_since = BEGIN  # when the server was started last
        self._was_full = False  # whether the disk has been, since then
        self.publisher = self.driver.client()
        self.ledger = self._create()
        self._api(f"STREAM.CREATE.{NEIGHBOUR}", {"name": NEIGHBOUR, "subjects": [SUBJECT]})
        self.moves: list[tuple[int, Callable[[], None]]] = [
            (30, self._publish),
            (3, self._publish_again),
            (14, self._pull),
            (20, self._settle),
            (4, self._refuse),
            (20, self._disk_step),
            (8, self._pass_time),
            (2, self._remove),
            (1, self._purge),
            (1, self._describe),
            (2, self._come_or_go),
            (4, self._move_newcomers),
            (3, self._rest),
            (1, self._crash),
            (1, self._kill),
            (1, self._restart),
        ]
        if ends:
            self.moves += [(2, self._harm_files)]
        if trouble:
            self.moves += [(3, self._fill_disk), (1, self._fail_operation)]

    def crashing(self) -> "Simulation":
        """The same life, in which the power fails again and again."""
        self.moves.append((10, self._crash))
        return self

    def failing(self) -> "Simulation":
        """The same life, in which whatever the disk is to change may fail."""
        self._operations = ("append", "mkdir", "pwrite", "remove", "rename", "reserve",
                            "sync", "sync_dir", "truncate")  # fmt: skip
        self.moves.append((2, self._fail_operation))
        return self

    def busy(self) -> "Simulation":
        """The same life with a small log, in which consumers come and go, the power fails, and
        a loss is looked for, more often than else."""
        self._log_bytes = 12_000 + HEAD_SIZE
        self.ledger.watches_losses = True
        self.moves += [(20, self._come_or_go), (5, self._describe)]
        self.moves += [(5, self._crash), (5, self._kill)]
        self.moves += [(10, self._move_newcomers)]
        return self

    # -- beginning -------------------------------------------------------------------------------

    def _begin(self, now: int) -> Driver:
        driver = Driver(
            self.disk,
            now=now,
            runner=self._committer(),
            segment_bytes=self._segment_bytes,
            log_bytes=self._log_bytes,
        ).start()
        driver.runner.hold()
        driver.runner.holds_reads = self.disk.is_cold
        if self.random.random() < 0.5:
            driver.engine.commit.queued_bytes_min = 0  # a second batch follows whatever its size
        # There are few streams: one that finds no room in the commit log would seldom wait.
        driver.engine.commit.own_syncs_max = self._own_syncs.choice((0, OWN_SYNCS_MAX))
        return driver

    def _create(self) -> Ledger:
        random = self.random
        retention = random.choice(("limits", "workqueue", "interest"))
        per_subject = random.choice((0, 0, 1, 3)) if retention == "limits" else 0
        messages_max = random.choice((0, 0, 5, 20)) if retention == "limits" else 0
        self._rolls_up = retention == "limits" and random.random() < 0.5
        config: dict[str, Any] = {
            "name": STREAM,
            "subjects": ["s.>"],
            "retention": retention,
            "duplicate_window": WINDOW,
            "allow_msg_ttl": self._ttls,
            "allow_rollup_hdrs": True,
        }
        if messages_max:
            config["max_msgs"] = messages_max
        if per_subject:
            config["max_msgs_per_subject"] = per_subject
        self._config = config
        self._api(f"STREAM.CREATE.{STREAM}", config)
        ledger = Ledger(retention, per_subject, WINDOW, messages_max)
        if self._letters:
            self._api(f"STREAM.CREATE.{DEAD}", {"name": DEAD, "subjects": ["dead.>"]})
        filters = ["s.c.*", "s.a"] if retention == "workqueue" else ["", "s.c.*"]
        for number, pattern in enumerate(filters[: random.randint(1, 2)]):
            room_max = random.choice((3, 100_000))
            name = f"c{number}"
            durable: dict[str, Any] = {
                "durable_name": name,
                "ack_policy": "explicit",
                "ack_wait": ACK_WAIT,
                "max_ack_pending": room_max,
            }
            if pattern:
                durable["filter_subject"] = pattern
            if self._letters:
                room_max = min(room_max, 30_000)
                durable |= {"dead_letter": f"dead.{name}", "max_ack_pending": room_max}
                durable["max_deliver"] = random.choice((-1, 1, 2, 4))
            asked = {"stream_name": STREAM, "config": durable}
            self._api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", asked)
            ledger.readers[name] = Reader(name, pattern, room_max)
            self.workers[name] = Worker(self.driver.client(), ledger.readers[name])
        return ledger

    def _api(self, subject: str, body: Any) -> Any:
        """A call that the disk does not hold up."""
        self._settle_disk()
        answers = self.publisher.ask(f"$JS.API.{subject}", body)
        self._settle_disk()
        answers += [m for m in self.publisher.take() if self._take_answer(m)]
        found = answers[0].json()
        if "error" in found:
            raise ViolationError(f"api: {subject}: {found['error']}")
        return found

    # -- running ---------------------------------------------------------------------------------

    def run(self, steps: int) -> "Simulation":
        """Let `steps` things happen, then come to rest. Raises `ViolationError`."""
        weights = [weight for weight, _ in self.moves]
        moves = [move for _, move in self.moves]
        try:
            for _ in range(steps):
                (move,) = self.random.choices(moves, weights)
                gathers = move in (self._publish, self._settle)
                self.driver.gathers = gathers and self._gathering.random() < GATHERED
                move()
                self.driver.gathers = False
                if self.looks.random.random() < LOOKS:
                    self._look()
                check_invariants(self.driver.engine)
                self._collect()
            self._rest()
            self._crash()
            self._drain()
        except ViolationError as error:
            story = "\n    ".join(self.history[-HISTORY_SHOWN:])
            raise ViolationError(f"{error}\n  seed {self.seed}, after:\n    {story}") from error
        return self

    def _note(self, text: str) -> None:
        self.history.append(text)

    def _collect(self) -> None:
        """What clients have been sent meanwhile."""
        for message in self.publisher.take():
            self._take_answer(message)
        for worker in self.workers.values():
            for message in worker.client.take():
                self._take(worker, message)
        self.looks.arrived()

    def _take_answer(self, message: Message) -> bool:
        """A publish acknowledgement; True if it is something else."""
        if self.neighbour.take(message) or self.newcomers.take(message):
            return False
        if self._take_look(message):
            return False
        published = self._waiting.pop(message.subject, None)
        if published is None:
            return self._take_api_answer(message)
        answer = message.json()
        if "error" not in answer:
            self._note(f"acknowledged {answer}")
            duplicate = bool(answer.get("duplicate"))
            self.ledger.acknowledged(published, answer["seq"], duplicate)
        return False

    def _take(self, worker: Worker, message: Message) -> None:
        if message.sid == "1":
            seq = worker.confirming.pop(message.subject, 0)
            if seq:
                self._note(f"{worker.reader.name} confirmed {seq}")
                self.ledger.confirmed(worker.reader, seq)
        elif not message.reply:
            if not message.status.startswith("100"):
                worker.requests.pop(message.sid, None)
        else:
            seq = int(message.reply.split(".")[5])
            self._note(f"{worker.reader.name} got {seq}")
            self.ledger.delivered(worker.reader, seq, message.subject, message.body)
            if not self.ledger.is_harmed:
                self.looks.delivered(worker.reader.name, seq)
            worker.replies[seq] = message.reply
            if message.sid in worker.requests:
                worker.requests[message.sid] -= 1
                if worker.requests[message.sid] == 0:
                    del worker.requests[message.sid]

    # -- what may happen -------------------------------------------------------------------------

    def _publish(self) -> None:
        subject = self.random.choice(SUBJECTS)
        self._count += 1
        body = b"%d:" % self._count + self._content()
        message_id = f"id-{self._count}" if self.random.random() < 0.5 else ""
        rollup = ""
        if self._rolls_up and self.random.random() < 0.1:
            rollup = self.random.choice(("all", "sub"))
        ttl = self.random.choice((0, 1, 3, 20, 90)) if self._ttls else 0
        self._send(subject, body, message_id, rollup, ttl)

    def _content(self) -> bytes:
        """Points, some or many, or what passes for records."""
        kind = self.random.random()
        if kind > 0.9:
            return self._records()
        return b"." * self.random.randrange(300 if kind < 0.8 else 4_000)

    def _records(self) -> bytes:
        """A body of what passes for records, if the log does not know better: its own, or such as
        would be of another stream, remove all messages, or fill the memory."""
        paths = self._segments()
        if paths and self.random.random() < 0.3:
            copy = self.disk.read(self.random.choice(paths)).rstrip(b"\0")[-6_000:]
            self._copies.add(copy)
            return copy
        out = OutBuffer()
        for salt in (GUESSED_SALT, first_format_salt(1)):
            encode(out, MESSAGE, salt, 3_000, 0, b"s.a", b"forged", 0, 0, 6)
            for kind, number in ((FRONT, 2_000), (SKIP, 1 << 62)):
                encode(out, kind, salt, 3_001, 0, b"", number.to_bytes(8, "little"), 0, 0, 8)
        return out.take()

    def _publish_again(self) -> None:
        """What a client does that has not heard of its message, or does not remember."""
        recent = [a for a in self.ledger.attempts[-50:] if a.message_id]
        if recent:
            old = self.random.choice(recent)
            self._send(old.subject, old.body, old.message_id, ttl=old.ttl // SECOND)

    def _send(
        self, subject: str, body: bytes, message_id: str, rollup: str = "", ttl: int = 0
    ) -> None:
        self._count += 1
        inbox = f"_INBOX.t.p{self._count}"
        now = self.driver.clock.now
        published = self.ledger.attempt(subject, body, message_id, now, rollup, ttl * SECOND)
        published.has_copies = body.partition(b":")[2] in self._copies
        self._waiting[inbox] = published
        self._note(f"publish {subject} {message_id} {body[:8]!r} {rollup} {ttl or ''}")
        headers = {NATS_MSG_ID: message_id} if message_id else {}
        if rollup:
            headers[NATS_ROLLUP] = rollup
        if ttl:
            headers[NATS_TTL] = str(ttl)
        frame = encode_publish(subject, body, inbox, headers or None)
        if self.neighbour.random.random() < 0.6:  # both in one turn
            frame += self.neighbour.frame()
        self.publisher.send(frame)

    def _pull(self) -> None:
        worker = self.random.choice(list(self.workers.values()))
        if len(worker.requests) >= 3:
            return
        self._ask(worker, self.random.randint(1, 6), self.random.randint(1, 40) * SECOND)

    def _ask(self, worker: Worker, batch: int, expires: int) -> None:
        self._count += 1
        sid = str(100 + self._count)  # 1 is the client's inbox
        worker.requests[sid] = batch
        self._note(f"{worker.reader.name} pulls {batch}")
        worker.client.subscribe(f"_INBOX.w{sid}", int(sid))
        worker.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{worker.reader.name}",
            b'{"batch":%d,"expires":%d}' % (batch, expires),
            f"_INBOX.w{sid}",
        )

    def _settle(self) -> None:
        worker = self.random.choice(list(self.workers.values()))
        if not worker.reader.out:
            return
        seq = self.random.choice(sorted(worker.reader.out))
        self._acknowledge(worker, seq, self.random.choice((b"", b"+ACK", b"+TERM")))

    def _acknowledge(self, worker: Worker, seq: int, text: bytes) -> None:
        inbox = ""
        if self.random.random() < 0.5:
            self._count += 1
            inbox = f"_INBOX.t.d{self._count}"
            worker.confirming[inbox] = seq
        self._note(f"{worker.reader.name} settles {seq} {text!r} {inbox}")
        if text != b"+TERM":
            worker.reader.acked.add(seq)
        self.ledger.settled(worker.reader, seq)
        worker.client.publish(worker.replies[seq], text, inbox)

    def _refuse(self) -> None:
        worker = self.random.choice(list(self.workers.values()))
        if worker.reader.out:
            seq = self.random.choice(sorted(worker.reader.out))
            text = self.random.choice((b"-NAK", b'-NAK {"delay":1000000000}', b"+WPI"))
            self._note(f"{worker.reader.name} refuses {seq} {text!r}")
            worker.client.publish(worker.replies[seq], text)

    def _remove(self) -> None:
        self.ledger.now = self.driver.clock.now
        live = [s for s, m in self.ledger.by_seq.items() if not self.ledger.may_be_gone(m)]
        if live:
            seq = self.random.choice(live)
            self.ledger.removed.add(seq)
            self._note(f"delete {seq}")
            asked = b'{"seq":%d,"no_erase":%s}' % (seq, self.random.choice((b"true", b"false")))
            self._ask_removal("STREAM.MSG.DELETE", asked, {seq})

    def _purge(self) -> None:
        pattern = self.random.choice((*SUBJECTS, "s.c.*", ">"))
        self._note(f"purge {pattern}")
        asked = b'{"filter":"%b"}' % pattern.encode() if pattern != ">" else b""
        self._ask_removal("STREAM.PURGE", asked, self.ledger.purge(pattern))

    def _ask_removal(self, operation: str, asked: bytes, sequences: set[int]) -> None:
        self._count += 1
        inbox = f"_INBOX.t.r{self._count}"
        self._removing[inbox] = sequences
        self.publisher.publish(f"$JS.API.{operation}.{STREAM}", asked, inbox)

    def _describe(self) -> None:
        """Change the stream's configuration: its description, of any length."""
        self._count += 1
        text = f"{self._count}:" + "x" * self.random.choice((0, 300, 3000))
        self._note(f"update to {self._count}")
        self._descriptions.append(text)
        inbox = f"_INBOX.t.u{self._count}"
        self._describing[inbox] = text
        asked = json.dumps(self._config | {"description": text}).encode()
        self.publisher.publish(f"$JS.API.STREAM.UPDATE.{STREAM}", asked, inbox)

    def _come_or_go(self) -> None:
        """A consumer that gets no messages is created or deleted."""
        self._count += 1
        name = f"x{self.random.randrange(3)}"
        states = self._possible.setdefault(name, [(0, False)])
        comes = not states[-1][1]
        states.append((self._count, comes))
        inbox = f"_INBOX.t.x{self._count}"
        self._changing[inbox] = (name, self._count)
        self._note(f"{self._count}: {name} is to {'come' if comes else 'go'}")
        operation, asked = "CONSUMER.DELETE", b""
        if comes:
            operation = "CONSUMER.DURABLE.CREATE"
            text = "x" * self.random.choice((0, 500, 3_000))
            durable = {"durable_name": name, "filter_subject": f"s.{name}", "description": text}
            durable["ack_policy"] = "explicit"
            asked = json.dumps({"stream_name": STREAM, "config": durable}).encode()
        self.publisher.publish(f"$JS.API.{operation}.{STREAM}.{name}", asked, inbox)

    def _move_newcomers(self) -> None:
        """Other streams come and go."""
        self._note("a newcomer")
        frame, together = self.newcomers.frames()
        if together:
            self.publisher.session.receive(frame)
            self.driver.make_places(ends_turn=False)
        self.publisher.send(together or frame)

    def _look(self) -> None:
        """Somebody wants to know how the stream or a consumer is."""
        self._note("a look")
        self.publisher.send(self.looks.frame(STREAM, list(self.workers)))

    def _take_look(self, message: Message) -> bool:
        """The answer to that; True if it is one."""
        state = self.driver.js.state
        has_failed = bool(self.driver.js.streams[STREAM].failed)
        is_full = self.disk.capacity != PLENTY or self.looks.is_late(message)
        trust = Trust(
            ends=not (is_full or (has_failed and self._was_full)),
            removals=not (is_full or has_failed or state.is_stuck),
            kept=not (is_full or state.log.failed or state.is_refused),
        )
        info = self.looks.take(message, STREAM, trust)
        if info and trust.kept:
            text = info["config"].get("description", "")
            if text in self._descriptions:
                self._descriptions = self._descriptions[self._descriptions.index(text) :]
        return info is not None

    def _check_looks(self) -> None:
        """All that was shown before a crash is as it was, or has gone on."""
        asked = {"deleted_details": True}
        state = self._api(f"STREAM.INFO.{STREAM}", asked)["state"]
        infos = [self._api(f"CONSUMER.INFO.{STREAM}.{name}", b"") for name in self.workers]
        if not self.ledger.is_harmed:
            floors = {info["name"]: info["ack_floor"]["stream_seq"] for info in infos}
            self.looks.restarted(state, floors)

    def _check_consumers(self) -> None:
        """The consumers are there of which the last answer, or a request since, says so."""
        found = self._api(f"CONSUMER.NAMES.{STREAM}", b"")["consumers"]
        for name, states in self._possible.items():
            if (name in found) not in (comes for _, comes in states):
                raise ViolationError(f"consumer: {name} is to be there is one of {states}: {found}")
            self._possible[name] = [(0, name in found)]

    def _take_api_answer(self, message: Message) -> bool:
        """The answer to a removal, an update or a creation; True if it is something else."""
        sequences = self._removing.pop(message.subject, None)
        text = self._describing.pop(message.subject, None)
        consumer = self._changing.pop(message.subject, None)
        if sequences is None and text is None and consumer is None:
            return True
        if "error" in message.json():
            return False
        if consumer is not None:
            name, number = consumer
            states = self._possible[name]
            self._note(f"{number} is answered")
            if number in (request for request, _ in states):  # else a later one was answered before
                self._possible[name] = [state for state in states if state[0] >= number]
        if sequences is not None:
            self._note(f"gone are {sorted(sequences)}")
            self.ledger.removal_confirmed(sequences)
        if text in self._descriptions:  # else a look has shown a later one
            self._descriptions = self._descriptions[self._descriptions.index(text) :]
        return False

    def _check_configuration(self) -> None:
        """The configuration is the last one that was answered, or one that was sent after it."""
        found = self._api(f"STREAM.INFO.{STREAM}", b"")["config"].get("description", "")
        if found not in self._descriptions:
            raise ViolationError(
                f"configuration: the stream says {found[:9]}, and was updated since"
            )
        self._descriptions = [found]
        if self.driver.js.doubts.of(STREAM):
            raise ViolationError("configuration: a crash was taken for damage")

    def _disk_step(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            self.driver.runner.step(ahead=self.random.random() < 0.3)
            self.driver.finish()

    def _pass_time(self) -> None:
        ns = self.random.choice((SECOND // 100, SECOND // 5, SECOND, ACK_WAIT))
        self._note(f"{ns / SECOND} s go by")
        self.driver.advance(ns)

    def _fill_disk(self) -> None:
        """There is hardly any space left, until the next rest."""
        self._note("the disk is full")
        self._was_full = self.ledger.was_full = True
        self.disk.capacity = self.disk.used() + self.random.choice((0, 300, 5_000))

    def _make_space(self) -> None:
        """If the disk is full, it is so no longer."""
        if self.disk.capacity != PLENTY:
            self.disk.capacity = PLENTY
            self.looks.has_space_again()

    def _fail_operation(self) -> None:
        """The disk fails to do something; a failed sync ends the stream until the next start."""
        operation = self.random.choice(self._operations)
        self._note(f"{operation} will fail")
        self.disk.fail(operation, self.random.randint(1, 4))

    def _settle_disk(self) -> None:
        """The disk does all that it was asked for."""
        self.driver.finish()
        while self.driver.runner.step():
            self.driver.finish()

    # -- rest, and the end of the world ----------------------------------------------------------

    def _rest(self) -> None:
        """Everything comes to rest without being pushed: then nothing may be held back."""
        self._make_space()
        self._settle_disk()
        self._collect()
        self._settle_disk()
        if self._letters:
            self._let_letters_go_on()
            self._collect_letters()
        stored = self._stored()
        self._check_letters(stored)
        failed = bool(self.driver.js.streams[STREAM].failed)
        self._check_stored(stored, failed)
        if self._awake_since <= self.driver.clock.now - LATE_MAX:
            self.ledger.check_expired(stored, LATE_MAX)
        if self._letters and self._letters_failed():
            return  # what waits to be one takes room
        for worker in self.workers.values():
            self.ledger.check_served(worker.reader, len(worker.requests), stored)

    def _collect_letters(self) -> None:
        """Until no dead letter is on its way any more, for which a read would wait."""
        for _ in range(ROUNDS_MAX):  # the commit of one may have to wait for another's
            if self._is_collected():
                return
            self._let_letters_go_on()
            if self._letters_failed():  # which the next attempt to commit them has found out, too
                return
        raise ViolationError("dead letter: what is stored is neither seen nor taken back")

    def _let_letters_go_on(self) -> None:
        self.driver.advance(AGAIN)
        self._settle_disk()
        self._collect()

    def _is_collected(self) -> bool:
        """Whether all dead letters that are stored count."""
        stream = self.driver.js.streams[DEAD]
        return stream.visible_seq >= stream.log.last_seq

    def _letters_failed(self) -> bool:
        """Whether the disk takes no dead letters any more."""
        js = self.driver.js
        return bool(js.streams[DEAD].failed or js.state.log.failed)

    def _check_letters(self, stored: dict[int, bytes]) -> None:
        """What was given up or terminated is a dead letter, or is still to be delivered."""
        if not self._letters:
            return
        found: dict[str, list[int]] = {name: [] for name in self.workers}
        for letter in self._messages(DEAD).values():
            fields = letter.fields
            number = int(fields["Slipstream-Dead-Sequence"])
            found[fields["Slipstream-Dead-Consumer"]].append(number)
            known = self.ledger.by_seq.get(number)
            if known is not None and letter.body != known.body:
                raise ViolationError(f"dead letter: that of {number} is not {known}")
        consumers = self.driver.js.streams[STREAM].consumers
        for name, worker in self.workers.items():
            consumer = consumers[name]
            unsettled = set(consumer.pending.sequences())
            unsettled |= {one for one in worker.reader.seen if one >= consumer.next_seq}
            unsettled |= set(consumer.letters.dying)  # if the commit log failed, a start decides
            self.ledger.check_letters(worker.reader, found[name], unsettled, stored)

    def _check_stored(self, stored: dict[int, bytes], failed: bool = False) -> None:
        state = self._api(f"STREAM.INFO.{STREAM}", b"")["state"]
        lost = state.get("lost", {}).get("msgs", [])
        torn = self.driver.js.streams[STREAM].log.lost.torn
        gone = {seq for first, last in torn for seq in range(first, last + 1)}
        self.ledger.check_stored(stored, lost, failed, state["last_seq"], gone)

    def _stored(self, stream: str = STREAM) -> dict[int, bytes]:
        """Everything that a stream gives out, by its API."""
        self.ledger.now = self.driver.clock.now
        return {seq: found.body for seq, found in self._messages(stream).items()}

    def _messages(self, stream: str) -> dict[int, Message]:
        """Everything that a stream gives out, while the disk reads at once."""
        runner = self.driver.runner
        runner.holds_reads = False
        try:
            # One that meets a message whose bytes were destroyed waits until it counts as removed.
            return self.publisher.messages(stream, self._settle_disk)
        finally:
            runner.holds_reads = self.disk.is_cold

    def _crash(self) -> None:
        """The power fails, perhaps while a batch is being written; something may be damaged; the
        server comes back."""
        self._collect()
        if self.random.random() < 0.6:
            for _ in range(self.random.randrange(6)):
                self._publish()
            for item in list(self.driver.runner.waiting)[: self.random.randint(1, 3)]:
                if item.batch is not None and not item.ran:
                    item.batch.flush()
        self._note("crash")
        self._make_space()
        self.crashes += 1
        self.disk.crash()
        if self._damage and self.random.random() < 0.7:
            self._harm()
        self._come_back()

    def _kill(self) -> None:
        """The process ends, and the system does not: what it was given may still get lost."""
        self._collect()
        self._note("kill")
        self._come_back()

    def _restart(self) -> None:
        """The server is stopped in order, and started."""
        self._settle_disk()
        self._collect()
        self._note("restart")
        self._make_space()
        self.driver.stop()
        self._collect()
        if self.random.random() < 0.5:
            self.disk.crash()
        self._come_back()

    def _come_back(self) -> None:
        self._waiting.clear()
        self._removing.clear()
        self._describing.clear()
        self._changing.clear()
        self.disk.heal()
        self.driver = self._begin(self.driver.clock.now + SECOND)
        self._awake_since = self.driver.clock.now
        self._was_full = False
        self.publisher = self.driver.client()
        self.ledger.restarted()
        for worker in self.workers.values():
            worker.client = self.driver.client()
            worker.requests.clear()
            worker.confirming.clear()
        self._check_configuration()
        self._check_looks()
        self._check_consumers()
        if self._letters:
            self._collect_letters()
        stored = self._stored()
        self._check_letters(stored)
        self._check_stored(stored)
        self.ledger.adopt_all(stored)
        self.neighbour.restarted(self._stored(NEIGHBOUR))
        self.newcomers.restarted(self.publisher.api, self._stored)
        self.ledger.was_full = self.disk.capacity != PLENTY
        problems = [text for text in self.driver.js.problems if "could not be recovered" in text]
        if problems:
            raise ViolationError(f"streams: a crash was taken for damage: {problems}")

    def _segments(self) -> list[str]:
        """The paths of the stream's segments."""
        return [path for path in self.disk.files(".seg") if f"/{STREAM}/" in path]

    def _harm(self) -> None:
        """Damage one message in a segment that is not the last to which something was written."""
        paths = self._segments()
        segments = [path for path in paths if self.disk.read(path).strip(b"\0")][:-1]
        if not segments:
            return
        path = self.random.choice(segments)
        data = self.disk.read(path)
        if not data[:HEADER_SIZE].strip(b"\0"):
            return  # harmed before
        base = int(path.split("/")[-1].split(".")[0])
        found = [
            (record.seq, at, record.end)
            for record, at in scan_records(data, base, decode_header(data).salt)
            if record.kind == MESSAGE
        ]
        if found:
            longest = max(found, key=lambda span: span[2] - span[1])
            seq, start, end = self.random.choice((longest, self.random.choice(found)))
            self._note(f"damage to {seq}")
            self.ledger.damaged.add(seq)
            if self.random.random() < 0.5:  # the length, which says where the next record begins
                start, end = start + 4, start + 8
            self.disk.flip(path, self.random.randrange(start * 8, end * 8))

    def _harm_files(self) -> None:
        """The server is not running, and a second ago it still knew where its log ended; meanwhile
        a file is cut, or zeroed at its beginning, or gone."""
        self._settle_disk()
        self.driver.advance(2 * SECOND)
        self._settle_disk()
        self._collect()
        if self.random.random() < 0.5:
            self.driver.stop()
            self._collect()
        paths = self._segments()
        if paths:
            path = self.random.choice([*paths, paths[-1]])
            harm = self.random.choice(("cut", "zero", "lose"))
            self._note(f"{harm} {path}")
            self.ledger.harmed_at_large = True
            if harm == "cut":
                self.disk.cut(path, self.random.randrange(len(self.disk.read(path)) + 1))
            elif harm == "zero":
                self.disk.overwrite(path, 0, bytes(4096))
            else:
                self.disk.lose(path)
        self._come_back()

    def _drain(self) -> None:
        """Work off all that is left: it ends, and everything stored was delivered."""
        for worker in self.workers.values():
            for _ in range(len(self.ledger.attempts) + 2):
                self.driver.advance(ACK_WAIT + SECOND)
                if not worker.requests:
                    self._ask(worker, 100, 3600 * SECOND)
                self._settle_disk()
                self._collect()
                if not worker.reader.out:
                    break
                for seq in sorted(worker.reader.out):
                    self._acknowledge(worker, seq, b"+ACK")
                self._settle_disk()
                self._collect()
            else:
                raise ViolationError(f"stall: {worker.reader.name} does not come to an end")
            worker.reader.certain = True
        self._rest()
