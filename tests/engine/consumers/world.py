"""A small world around consumers, where a seed decides what happens next.

Publishes, pulls, acknowledgements of all kinds, deletes, purges, limits, pauses, updates, interest
that comes and goes, clients that fall behind and catch up, syncs that take their time, time that
moves, consumers made anew, restarts. After each event the engine comes to rest, and the checker of
`checker` says whether somebody was left waiting.
"""

import json
from random import Random
from typing import Any

from slipstream.testing.driver import Driver, HandRunner, Message
from slipstream.testing.invariants import check_invariants
from slipstream.testing.simulated_disk import SimulatedDisk

from .checker import MS, ConsumerModel, Request

SUBJECTS = ("s.a", "s.b", "s.c.d")
BIG = b"x" * 40_000
BACKLOG = (
    1 << 25
)  # bytes: more than a consumer sends ahead, less than costs a client its connection
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"filter_subject": "s.a"},
    {"filter_subject": "s.*"},
    {"filter_subjects": ["s.a", "s.c.>"]},
)
EVENTS = {
    "publish": 30, "pull": 24, "ack": 26, "time": 8, "deaf": 2, "delete": 4, "purge": 1, "pause": 2,
    "resume": 2, "update": 3, "recreate": 1, "slow": 2, "drain": 4, "late": 2, "sync": 4,
    "restart": 1, "listen": 3, "limits": 1,
}  # fmt: skip


class StalledError(AssertionError):
    """A consumer with work, room and somebody waiting did not deliver."""


class World:
    """One seed's world; `run` lets it go on."""

    def __init__(
        self, seed: int, runner: type[HandRunner] = HandRunner, counts: bool = True
    ) -> None:
        self.counts = counts  # whether consumer info is compared too
        self.random = Random(seed)
        self.disk = SimulatedDisk(Random(seed))
        self.runner = runner
        self.live: dict[int, str] = {}
        self.known: dict[int, str] = {}  # every sequence that was acknowledged, and its subject
        self.published: dict[str, str] = {}
        self.consumers: dict[str, ConsumerModel] = {}
        self.received: dict[str, list[Message]] = {}
        self.number = 0
        self.history: list[str] = []
        retention = self.random.choice(("limits", "limits", "interest", "workqueue"))
        self.config: dict[str, Any] = {
            "name": "S", "subjects": ["s.>"], "retention": retention,
            "storage": self.random.choice(("file", "file", "memory")),
        }  # fmt: skip
        self.durable = self.config["storage"] == "file"
        self._connect()
        self.admin.api("STREAM.CREATE.S", self.config)
        for i in range(1 if retention == "workqueue" else self.random.randint(1, 3)):
            self._create(f"c{i}")

    def _connect(self) -> None:
        self.driver = Driver(self.disk, runner=self.runner()).start()
        self.admin = self.driver.client()
        self.takers = [self.driver.client() for _ in range(2)]

    @property
    def now(self) -> int:
        return self.driver.clock.now

    # -- making consumers ----------------------------------------------------------------------

    def _create(self, name: str) -> None:
        config = self._consumer_config(name)
        log = self.driver.js.streams["S"].log
        start = log.last_seq + 1 if config["deliver_policy"] == "new" else log.first_seq
        answer = self._call(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        assert "error" not in answer, answer
        self.consumers[name] = ConsumerModel(name, config, start)
        self.received[name] = []

    def _consumer_config(self, name: str) -> dict[str, Any]:
        random = self.random
        workqueue = self.config["retention"] == "workqueue"
        config: dict[str, Any] = {"durable_name": name, **random.choice(FILTERS)}
        config["ack_policy"] = (
            "explicit" if workqueue else random.choice(("explicit", "explicit", "all", "none"))
        )
        config["deliver_policy"] = "all" if workqueue else random.choice(("all", "all", "new"))
        if config["ack_policy"] != "none":
            config["max_ack_pending"] = random.choice((-1, 1, 2, 5))
            config["max_deliver"] = random.choice((-1, -1, 1, 2, 4))
            config["ack_wait"] = random.choice((200, 1000, 5000)) * MS
            if random.random() < 0.2:
                config["backoff"] = [100 * MS, 500 * MS]
                config["max_deliver"] = random.choice((-1, 4))
                config["ack_wait"] = 100 * MS
        if random.random() < 0.25:
            config["deliver_subject"] = f"push.{name}"
        return config

    # -- events --------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Let so many things happen. Raises `StalledError`."""
        for _ in range(events):
            kind = self.random.choices(list(EVENTS), list(EVENTS.values()))[0]
            self.history.append(kind)
            getattr(self, "_" + kind)()
            self._check()

    def _call(self, subject: str, body: Any = b"") -> Any:
        """An API call; {} if the answer waits for the disk, which is late."""
        answers = self.admin.ask(f"$JS.API.{subject}", body)
        assert answers or self.driver.runner.held
        if not answers and self.driver.settle_log():
            answers = [m for m in self.admin.take() if m.subject == self.admin.inbox]
        return answers[0].json() if answers else {}

    def _model(self) -> ConsumerModel:
        return self.random.choice(list(self.consumers.values()))

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _publish(self) -> None:
        subject = self.random.choice(SUBJECTS)
        body = BIG if self.random.random() < 0.2 else b"x"
        inbox = f"_INBOX.t.p{self._next()}"
        self.published[inbox] = subject
        self.admin.publish(subject, body, inbox)

    def _pull(self) -> None:
        model = self._model()
        if "deliver_subject" in model.config:
            self._listen()
            return
        client = self.random.choice(self.takers)
        sid = str(self._next() + 100)
        batch = self.random.choice((1, 1, 2, 5, 20))
        asked: dict[str, Any] = {"batch": batch}
        expires = self.random.choice((0, 0, 300, 2000)) * MS
        if expires:
            asked["expires"] = expires
            if self.random.random() < 0.3:
                asked["idle_heartbeat"] = expires // 2
        if self.random.random() < 0.25:
            asked["no_wait"] = True
        if self.random.random() < 0.1:
            asked["max_bytes"] = self.random.choice((20, 50_000, 200_000))
        model.requests[sid] = Request(client, sid, batch, self.now + expires if expires else 0)
        body = json.dumps(asked)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{model.name}"
        client.send(
            f"SUB pull.{sid} {sid}\r\nPUB {subject} pull.{sid} {len(body)}\r\n{body}\r\n".encode()
        )

    def _listen(self) -> None:
        """Somebody listens to a push consumer."""
        for model in self.consumers.values():
            if "deliver_subject" in model.config:
                client = self.random.choice(self.takers)
                for request in model.requests.values():  # one at a time, so that nothing is doubled
                    self._unsubscribe(request)
                sid = str(self._next() + 100)
                model.requests[sid] = Request(client, sid, 1 << 30)
                client.subscribe(model.config["deliver_subject"], int(sid))

    def _unsubscribe(self, request: Request) -> None:
        if request.listening:
            request.listening = False
            request.client.send(f"UNSUB {request.sid}\r\n".encode())

    def _deaf(self) -> None:
        requests = [r for m in self.consumers.values() for r in m.requests.values()]
        if requests:
            self._unsubscribe(self.random.choice(requests[-4:]))

    def _ack(self) -> None:
        model = self._model()
        messages = self.received[model.name]
        if not messages:
            return
        message = self.random.choice(messages[-8:])
        body = self.random.choice(
            (b"", b"+ACK", b"+ACK", b"-NAK", b"-NAK 300ms", b"+TERM", b"+WPI", b"+ACK")
        )
        seq = int(message.reply.split(".")[5])
        if seq in model.exhausted(self.now):
            return  # it is given up once somebody asks: an answer may come before or after
        reply = f"_INBOX.t.a{self._next()}" if self.random.random() < 0.3 else ""
        model.acknowledged(seq, body, self.now)
        self.admin.publish(message.reply, body, reply)

    def _time(self) -> None:
        end = self.now + self.random.choice((1, 60, 250, 1100, 6000)) * MS
        while self.now < end:  # in small steps, so that the checker sees every deadline in time
            due = self.driver.engine.timers.next_at()
            self.driver.advance(max(min(due or end, end) - self.now, 1))
            self._check()

    def _delete(self) -> None:
        if self.live:
            self._call("STREAM.MSG.DELETE.S", {"seq": self.random.choice(list(self.live))})

    def _purge(self) -> None:
        choices: list[dict[str, Any]] = [{}, {"keep": 2}, {"filter": "s.a"}]
        self._call("STREAM.PURGE.S", self.random.choice(choices))

    def _pause(self) -> None:
        model = self._model()
        until = self.now // MS * MS + self.random.choice((200, 2000)) * MS
        self._set_pause(model, until)

    def _resume(self) -> None:
        self._set_pause(self._model(), 0)

    def _set_pause(self, model: ConsumerModel, until: int) -> None:
        from slipstream.model.times import time_text

        body = {"pause_until": time_text(until)} if until else {}
        answer = self._call(f"CONSUMER.PAUSE.S.{model.name}", body)
        assert "error" not in answer, answer
        model.paused_until = until

    def _update(self) -> None:
        model = self._model()
        changed = dict(model.config)
        if "max_ack_pending" in changed:
            changed["max_ack_pending"] = self.random.choice((-1, 1, 3, 6))
        if self.config["retention"] == "limits":
            changed = {k: v for k, v in changed.items() if not k.startswith("filter")}
            changed |= self.random.choice(FILTERS)
        body = {"stream_name": "S", "config": changed}
        answer = self._call(f"CONSUMER.CREATE.S.{model.name}", body)
        assert "error" not in answer, answer
        model.refiltered(changed, self.known)

    def _recreate(self) -> None:
        model = self._model()
        for request in model.requests.values():
            self._unsubscribe(request)
        answer = self._call(f"CONSUMER.DELETE.S.{model.name}")
        assert "error" not in answer, answer
        del self.consumers[model.name]
        self._create(model.name)

    def _slow(self) -> None:
        self.random.choice(self.takers).transport.backlog = BACKLOG

    def _drain(self) -> None:
        for client in self.takers:
            if client.transport.backlog:
                client.transport.backlog = 0
                client.session.drained()
                self.driver.finish()

    def _late(self) -> None:
        self.driver.runner.hold()

    def _sync(self) -> None:
        runner = self.driver.runner
        runner.release()
        runner.held = False
        self.driver.finish()

    def _limits(self) -> None:
        if self.config["retention"] == "limits":
            self.config["max_msgs"] = self.random.choice((-1, 3, 10))
            answer = self._call("STREAM.UPDATE.S", self.config)
            assert "error" not in answer, answer

    def _restart(self) -> None:
        if not self.durable:
            return
        self._sync()
        self._check()
        now = self.now
        self.driver.stop()
        self._connect_at(now)

    def _connect_at(self, now: int) -> None:
        self.driver = Driver(self.disk, now=now, runner=self.runner()).start()
        self.admin = self.driver.client()
        self.takers = [self.driver.client() for _ in range(2)]
        for model in self.consumers.values():
            model.requests.clear()

    # -- checking ------------------------------------------------------------------------------

    def _check(self) -> None:
        """Collect what came, and see whether anything is missing."""
        check_invariants(self.driver.engine)
        self._collect()
        for model in self.consumers.values():
            model.give_up(self.live, self.now, self.driver.runner.held)
            stalled = model.stalls(self.live, self.now)
            if stalled:
                raise StalledError(f"{stalled}; after {' '.join(self.history[-12:])}")
            if self.counts:
                self._compare_counts(model)

    def _collect(self) -> None:
        for message in self.admin.take():
            subject = self.published.pop(message.subject, None)
            if subject is not None:
                self.known[message.json()["seq"]] = subject
        log = self.driver.js.streams["S"].log  # the API shows nothing before the disk has it
        self.live = {seq: subject for seq, subject in self.known.items() if log.holds(seq)}
        came = [message for client in self.takers for message in client.take()]
        came.sort(key=_consumer_seq)  # of several clients, in the order of delivery
        for message in came:
            self._arrived(message)

    def _arrived(self, message: Message) -> None:
        for model in self.consumers.values():
            request = model.requests.get(message.sid)
            if request is None:
                continue
            if message.header.startswith(b"NATS/1.0 "):
                request.ended = request.ended or not message.status.startswith("100")
                return
            request.left -= 1
            model.delivered(message, self.live, self.now)
            self.received[model.name].append(message)

    def _compare_counts(self, model: ConsumerModel) -> None:
        if self.driver.runner.held:
            return  # what is stored but not acknowledged yet counts there, but not here
        info = self.admin.api(f"CONSUMER.INFO.S.{model.name}")
        owed, unsure = len(model.undelivered(self.live)), len(model.unsure(self.live))
        assert owed <= info["num_pending"] <= owed + unsure, (
            model.name, info["num_pending"], owed, unsure, self.history[-12:],
        )  # fmt: skip
        out = len(model.out)
        assert out - len(model.exhausted(self.now)) <= info["num_ack_pending"] <= out, (
            model.name, info["num_ack_pending"], model.out, self.history[-12:],
        )  # fmt: skip


def _consumer_seq(message: Message) -> int:
    return int(message.reply.split(".")[6]) if message.reply else 0
