"""The whole engine under a seed: clients, time, a disk, crashes; and a ledger that watches.

One `Simulation` is one life of a stream with consumers. At each step something happens by chance:
a publish, a pull, an acknowledgement, time goes by, the disk gets a little further, the power
fails. Now and then everything comes to rest, and what clients were promised is compared with what
there is (`ledger`). The same seed gives the same life, so a violation can be looked at again:

    Simulation(seed=4711).run(steps=400)

Parts can be replaced to plant faults or to go further: the disk, the committer, the weights of what
happens (`Simulation.moves`).
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slipstream.engine.options import SECOND
from slipstream.log.record import MESSAGE
from slipstream.log.segment import salt_of, scan_records
from slipstream.testing.driver import BEGIN, Client, Driver, HandCommitter, Message
from slipstream.testing.ledger import Ledger, Published, Reader, ViolationError
from slipstream.testing.simulated_disk import SimulatedDisk

STREAM = "S"
SUBJECTS = ("s.a", "s.b", "s.c.x", "s.c.y")
ACK_WAIT = 5 * SECOND
WINDOW = 120 * SECOND
PLENTY = 1 << 40  # bytes of a disk that is not full
HISTORY_SHOWN = 30


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
        committer: Callable[[], HandCommitter] = HandCommitter,
        damage: bool = False,
        trouble: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.disk = disk or SimulatedDisk(Random(seed + 1))
        self.history: list[str] = []
        self.crashes = 0
        self._committer = committer
        self._damage = damage
        self._count = 0
        self._waiting: dict[str, Published] = {}  # publishes by inbox
        self._segment_bytes = self.random.choice((1_000, 4_000, 1 << 20))
        self.workers: dict[str, Worker] = {}
        self.driver = self._begin(BEGIN)
        self.publisher = self.driver.client()
        self.ledger = self._create()
        self.moves: list[tuple[int, Callable[[], None]]] = [
            (30, self._publish),
            (3, self._publish_again),
            (14, self._pull),
            (20, self._settle),
            (4, self._refuse),
            (20, self._disk_step),
            (8, self._pass_time),
            (2, self._remove),
            (3, self._rest),
            (1, self._crash),
            (1, self._kill),
            (1, self._restart),
        ]
        if trouble:
            self.moves += [(3, self._fill_disk), (1, self._fail_operation)]

    # -- beginning -------------------------------------------------------------------------------

    def _begin(self, now: int) -> Driver:
        driver = Driver(
            self.disk, now=now, committer=self._committer(), segment_bytes=self._segment_bytes
        ).start()
        driver.committer.hold()
        driver.committer.overlap = self.random.random() < 0.5
        return driver

    def _create(self) -> Ledger:
        random = self.random
        retention = random.choice(("limits", "workqueue", "interest"))
        per_subject = random.choice((0, 0, 1, 3)) if retention == "limits" else 0
        config: dict[str, Any] = {
            "name": STREAM,
            "subjects": ["s.>"],
            "retention": retention,
            "duplicate_window": WINDOW,
        }
        if per_subject:
            config["max_msgs_per_subject"] = per_subject
        self._api(f"STREAM.CREATE.{STREAM}", config)
        ledger = Ledger(retention, per_subject, WINDOW)
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
                move()
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

    def _take_answer(self, message: Message) -> bool:
        """A publish acknowledgement; True if it is something else."""
        published = self._waiting.pop(message.subject, None)
        if published is None:
            return True
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
            worker.replies[seq] = message.reply
            if message.sid in worker.requests:
                worker.requests[message.sid] -= 1
                if worker.requests[message.sid] == 0:
                    del worker.requests[message.sid]

    # -- what may happen -------------------------------------------------------------------------

    def _publish(self) -> None:
        subject = self.random.choice(SUBJECTS)
        self._count += 1
        body = b"%d:" % self._count + bytes(self.random.randrange(300))
        self._send(subject, body, f"id-{self._count}" if self.random.random() < 0.5 else "")

    def _publish_again(self) -> None:
        """What a client does that has not heard of its message, or does not remember."""
        recent = [a for a in self.ledger.attempts[-50:] if a.message_id]
        if recent:
            old = self.random.choice(recent)
            self._send(old.subject, old.body, old.message_id)

    def _send(self, subject: str, body: bytes, message_id: str) -> None:
        self._count += 1
        inbox = f"_INBOX.t.p{self._count}"
        published = self.ledger.attempt(subject, body, message_id, self.driver.clock.now)
        self._waiting[inbox] = published
        self._note(f"publish {subject} {message_id} {body[:8]!r}")
        headers = {"Nats-Msg-Id": message_id} if message_id else None
        self.publisher.publish(subject, body, inbox, headers)

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
        live = [s for s, m in self.ledger.by_seq.items() if not self.ledger.may_be_gone(m)]
        if live:
            seq = self.random.choice(live)
            self.ledger.removed.add(seq)
            self._note(f"delete {seq}")
            asked = b'{"seq":%d,"no_erase":%s}' % (seq, self.random.choice((b"true", b"false")))
            self.publisher.publish(f"$JS.API.STREAM.MSG.DELETE.{STREAM}", asked, "_INBOX.t.x")

    def _disk_step(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            self.driver.committer.step(ahead=self.random.random() < 0.3)
            self.driver.finish()

    def _pass_time(self) -> None:
        ns = self.random.choice((SECOND // 100, SECOND // 5, SECOND, ACK_WAIT))
        self._note(f"{ns / SECOND} s go by")
        self.driver.advance(ns)

    def _fill_disk(self) -> None:
        """There is hardly any space left, until the next rest."""
        self._note("the disk is full")
        self.disk.capacity = self.disk.used() + self.random.choice((0, 300, 5_000))

    def _fail_operation(self) -> None:
        """The disk fails to do something; a failed sync ends the stream until the next start."""
        operation = self.random.choice(("sync", "sync", "append", "rename", "remove"))
        self._note(f"{operation} will fail")
        self.disk.fail(operation, self.random.randint(1, 4))

    def _settle_disk(self) -> None:
        """The disk does all that it was asked for."""
        while self.driver.committer.step():
            self.driver.finish()

    # -- rest, and the end of the world ----------------------------------------------------------

    def _rest(self) -> None:
        """Everything comes to rest without being pushed: then nothing may be held back."""
        self.disk.capacity = PLENTY
        self._settle_disk()
        self._collect()
        self._settle_disk()
        stored = self._stored()
        self.ledger.check_stored(stored, self._lost())
        for worker in self.workers.values():
            self.ledger.check_served(worker.reader, len(worker.requests), stored)

    def _lost(self) -> list[int]:
        state = self._api(f"STREAM.INFO.{STREAM}", b"")["state"]
        return list(state.get("lost", {}).get("msgs", []))

    def _stored(self) -> dict[int, bytes]:
        """Everything that the stream gives out, by its API."""
        found: dict[int, bytes] = {}
        seq = 1
        while True:
            asked = {"seq": seq, "next_by_subj": ">"}
            answer = self.publisher.api(f"STREAM.MSG.GET.{STREAM}", asked)
            if "error" in answer:
                return found
            message = answer["message"]
            seq = message["seq"] + 1
            found[message["seq"]] = base64.b64decode(message.get("data", ""))

    def _crash(self) -> None:
        """The power fails; something may be damaged; the server comes back."""
        self._collect()
        self._note("crash")
        self.disk.capacity = PLENTY
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
        self.disk.capacity = PLENTY
        self.driver.stop()
        self._collect()
        if self.random.random() < 0.5:
            self.disk.crash()
        self._come_back()

    def _come_back(self) -> None:
        self._waiting.clear()
        self.disk.heal()
        self.driver = self._begin(self.driver.clock.now + SECOND)
        self.publisher = self.driver.client()
        self.ledger.restarted()
        for worker in self.workers.values():
            worker.client = self.driver.client()
            worker.requests.clear()
            worker.confirming.clear()
        self.ledger.check_stored(self._stored(), self._lost())

    def _harm(self) -> None:
        """Damage one message in a segment that is not the last to which something was written."""
        paths = self.disk.files(".seg")
        segments = [path for path in paths if self.disk.read(path).strip(b"\0")][:-1]
        if not segments:
            return
        path = self.random.choice(segments)
        data = self.disk.read(path)
        base = int(path.split("/")[-1].split(".")[0])
        found = [
            (record.seq, at, record.end)
            for record, at in scan_records(data, base, salt_of(base))
            if record.kind == MESSAGE
        ]
        if found:
            seq, start, end = self.random.choice(found)
            self._note(f"damage to {seq}")
            self.ledger.damaged.add(seq)
            self.disk.flip(path, self.random.randrange(start * 8, end * 8))

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
