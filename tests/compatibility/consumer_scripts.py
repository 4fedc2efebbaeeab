"""Random scripts of what clients do to consumers, run against two servers at once.

A script is a list of steps from a seed: publish, pull with all fields, acknowledge in every way,
delete, purge, pause, update, recreate, lose interest. After each step both servers must show the
same consumers and streams and must have sent the same messages. nats-server delivers in the
background, so each side is asked again until it agrees, or the patience is over.
"""

import json
import re
import time
from random import Random
from typing import Any

from tests.compatibility.raw_client import RawClient, Reply

SUBJECTS = ("s.a", "s.b", "s.c", "s.d.e")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"filter_subject": "s.a"},
    {"filter_subject": "s.*"},
    {"filter_subjects": ["s.a", "s.b"]},
    {"filter_subjects": ["s.d.>", "s.c"]},
)
STARTS = ("last_per_subject", "all", "all", "new", "last", "by_start_sequence")
ACKS = (
    b"", b"+ACK", b"+ACK", b"-NAK", b"-NAK", b"+TERM why", b"+WPI", b"-NAK 1h", b"odd", b"+NXT",
    b'+NXT {"batch":2,"no_wait":true}',
)  # fmt: skip
HOUR = 3_600_000_000_000
PATIENCE_SECONDS = 30.0
COUNTING_SECONDS = 0.5
Step = tuple[Any, ...]
_TIME = re.compile(r"(\$JS\.ACK(?:\.\w+){5})\.\d{19}\.(\d+)")


def make_script(seed: int, size: int = 60) -> list[Step]:
    """The steps of a seed; the same for each who runs it."""
    return _Writer(Random(seed)).write(size)


class _Writer:
    """Writes one script.

    It leaves out what nats-server does in a way of its own, which docs/compatibility.md names:
    single messages removed from under a consumer that acknowledges all before, a purge of one of a
    consumer's several filters, `num_pending` of a last_per_subject consumer that is moved, filters
    that are taken away, old acknowledgements after a reset.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.retention = random.choice(("limits", "limits", "interest", "workqueue"))
        self.ack_policies = ["explicit"]
        if self.retention != "workqueue":
            self.ack_policies += ["none", "all"] if random.random() < 0.4 else ["none"]
        self.removes = "all" not in self.ack_policies
        self.moves = random.random() < 0.7
        self.stream: dict[str, Any] = {"name": "S", "subjects": ["s.>"]}
        self.stream["retention"] = self.retention
        if self.removes and random.random() < 0.3:
            self.stream["max_msgs"] = random.randint(4, 12)
        if self.removes and random.random() < 0.2:
            self.stream["max_msgs_per_subject"] = random.randint(1, 3)
        count = 1 if self.retention == "workqueue" else random.randint(1, 3)
        self.configs = {f"c{i}": self._config() for i in range(count)}

    def write(self, size: int) -> list[Step]:
        steps: list[Step] = [("stream", self.stream)]
        steps += [self._publish() for _ in range(self.random.randrange(8))]
        steps += [("consumer", name, config) for name, config in self.configs.items()]
        return steps + [self._step() for _ in range(size)]

    def _publish(self) -> Step:
        return ("publish", self.random.choice(SUBJECTS))

    def _config(self) -> dict[str, Any]:
        random = self.random
        config: dict[str, Any] = dict(random.choice(FILTERS))
        config["ack_policy"] = random.choice(self.ack_policies)
        if self.retention != "workqueue":
            config["deliver_policy"] = random.choice(STARTS[self.moves :])
            if config["deliver_policy"] == "last_per_subject" and not _filtered(config):
                config["filter_subject"] = "s.>"
            if config["deliver_policy"] == "by_start_sequence":
                config["opt_start_seq"] = random.randint(1, 9)
        if config["ack_policy"] != "none":
            config["ack_wait"] = HOUR
            config["max_ack_pending"] = random.choice((-1, 1, 2, 4, 1000))
            config["max_deliver"] = random.choice((-1, -1, 1, 2, 3))
        config["headers_only"] = random.random() < 0.15
        return config

    def _step(self) -> Step:
        random = self.random
        kinds = {"publish": 30, "pull": 26, "ack": 30, "pause": 2, "recreate": 1, "deaf": 2}
        kinds |= {
            "delete": 4 * (self.removes and self.moves),
            "purge": 2 * self.moves,
            "update": 3 * self.moves,
        }
        kinds["reset"] = int(self.moves and self.removes and "max_msgs" not in self.stream)
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        name = random.choice(list(self.configs))
        if kind == "publish":
            return self._publish()
        if kind == "pull":
            return ("pull", name, self._request())
        if kind == "ack":
            return ("ack", name, random.random(), random.choice(ACKS))
        if kind == "delete":
            return ("delete", random.random())
        if kind == "purge":
            choices: list[dict[str, Any]] = [{}, {"keep": 2}, {"seq": random.randint(1, 20)}]
            if not any("filter_subjects" in config for config in self.configs.values()):
                choices += [{"filter": "s.a"}, {"filter": "s.*", "keep": 1}]
            return ("purge", random.choice(choices), tuple(self.configs))
        if kind == "pause":
            return ("pause", name, random.random() < 0.5)
        if kind == "update":
            return ("update", name, self._changed(name))
        if kind == "recreate":
            return ("recreate", name, self.configs[name])
        return (kind, name)

    def _changed(self, name: str) -> dict[str, Any]:
        random = self.random
        changed = dict(self.configs[name])
        if "max_ack_pending" in changed:
            changed["max_ack_pending"] = random.choice((-1, 2, 3, 1000))
        if self.retention == "limits":
            changed = {k: v for k, v in changed.items() if not k.startswith("filter")}
            changed |= random.choice(FILTERS[2:] if _filtered(self.configs[name]) else FILTERS)
        self.configs[name] = changed
        return changed

    def _request(self) -> dict[str, Any]:
        random = self.random
        asked: dict[str, Any] = {"batch": random.choice((1, 1, 2, 3, 5))}
        if random.random() < 0.35:
            asked["no_wait"] = True
        if random.random() < 0.5:
            asked["expires"] = HOUR
        if random.random() < 0.2:
            asked["max_bytes"] = random.choice((10, 60, 120, 180, 400))
        return asked


def _filtered(config: dict[str, Any]) -> bool:
    return "filter_subject" in config or "filter_subjects" in config


class Side:
    """One of the two servers, as a script sees it."""

    def __init__(self, port: int, prefix: str = "in", stream: str = "S") -> None:
        self.client = RawClient(port)
        self.stream = stream  # its name, whatever the script says
        self.prefix = prefix.encode()  # of inboxes: another for each script
        self.client.subscribe(prefix + ".*", 7)
        self.got: list[Reply] = []  # everything that came to the inboxes, in order
        self.limited = False
        self.asked = 0
        self.inboxes = 0

    def api(self, subject: str, body: Any = b"") -> Any:
        """An API call; what comes to the inboxes meanwhile is kept."""
        self.asked += 1
        inbox = b"_INBOX.raw.%d" % self.asked
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.client.publish("$JS.API." + subject, payload, reply=inbox)
        return json.loads(self._wait_for(inbox).body)

    def _wait_for(self, inbox: bytes) -> Reply:
        while True:
            reply = self.client.next_message()
            if reply.subject == inbox.decode():
                return reply
            if not reply.subject.startswith("_INBOX"):
                self.got.append(reply)

    def close(self) -> None:
        self.api(f"STREAM.DELETE.{self.stream}")
        self.client.__exit__()

    # -- steps ---------------------------------------------------------------------------------

    def step(self, step: Step) -> Any:
        """Do one step; what the API answered, as far as it can be compared."""
        kind, *rest = step
        found: Any = getattr(self, "do_" + kind)(*rest)
        if isinstance(found, dict) and "error" in found:
            return found["error"]
        return None

    def do_stream(self, config: dict[str, Any]) -> Any:
        self.limited = "max_msgs" in config or "max_msgs_per_subject" in config
        self.api(f"STREAM.DELETE.{self.stream}")
        return self.api(f"STREAM.CREATE.{self.stream}", {**config, "name": self.stream})

    def do_publish(self, subject: str) -> None:
        self.asked += 1
        inbox = b"_INBOX.raw.%d" % self.asked
        self.client.publish(subject, b"x" * 8, reply=inbox)
        self._wait_for(inbox)

    def do_consumer(self, name: str, config: dict[str, Any]) -> Any:
        body = {"stream_name": self.stream, "config": {"durable_name": name, **config}}
        return self.api(f"CONSUMER.CREATE.{self.stream}.{name}", body)

    def do_update(self, name: str, config: dict[str, Any]) -> Any:
        """Change."""
        return self.do_consumer(name, config)

    def do_recreate(self, name: str, config: dict[str, Any]) -> Any:
        self.api(f"CONSUMER.DELETE.{self.stream}.{name}")
        self.settle()
        return self.do_consumer(name, config)

    def do_pull(self, name: str, asked: dict[str, Any]) -> None:
        self.inboxes += 1
        inbox = b"%b.%d" % (self.prefix, self.inboxes)
        body = json.dumps(asked).encode()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}", body, reply=inbox)

    def do_deaf(self, name: str) -> None:
        """Ask, but do not listen."""
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{name}", b"3", reply=b"deaf")

    def do_listen(self, subject: str, group: str) -> None:
        """Subscribe, as a member of a queue group if it is named."""
        self.client.send(f"SUB {subject} {group} {subject}-{group}\r\n".encode())
        self.settle()

    def do_leave(self, subject: str, group: str) -> None:
        """Listen no more."""
        self.client.send(f"UNSUB {subject}-{group}\r\n".encode())
        self.settle()

    def do_ack(self, name: str, which: float, body: bytes) -> None:
        replies = [
            r.reply for r in self.got if r.reply.startswith(f"$JS.ACK.{self.stream}.{name}.")
        ]
        if not replies:
            return
        newest = replies[-12:]
        target = newest[int(which * len(newest))]
        self.inboxes += 1
        self.client.publish(target, body, reply=b"%b.%d" % (self.prefix, self.inboxes))

    def do_delete(self, which: float) -> Any:
        state = self.api(f"STREAM.INFO.{self.stream}")["state"]
        seq = state["first_seq"] + int(which * (state["last_seq"] - state["first_seq"] + 1))
        return self.api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": seq}) if seq else None

    def do_purge(self, asked: dict[str, Any], consumers: tuple[str, ...]) -> Any:
        """Purge. It may make room, of which nats-server's consumers hear with the next request."""
        answer = self.api(f"STREAM.PURGE.{self.stream}", asked)
        for name in consumers:
            self.do_pull(name, {"batch": 1})
        return answer

    def do_pause(self, name: str, on: bool) -> Any:
        """Pause or resume. A resumed consumer of nats-server sleeps on: a request wakes it."""
        body = {"pause_until": "2099-01-01T00:00:00Z"} if on else {}
        answer = self.api(f"CONSUMER.PAUSE.{self.stream}.{name}", body)
        if not on:
            self.do_pull(name, {"batch": 1})
        return answer

    def do_reset(self, name: str) -> Any:
        return self.api(f"CONSUMER.RESET.{self.stream}.{name}")

    # -- what is compared ----------------------------------------------------------------------

    def settle(self) -> None:
        """Collect what was sent."""
        self.api("INFO")

    def view(self) -> dict[str, Any]:
        """Stream and consumers as they stand, and the messages so far."""
        state = self.api(f"STREAM.INFO.{self.stream}")["state"]
        shown: dict[str, Any] = {
            "stream": {k: state[k] for k in ("messages", "bytes", "first_seq", "last_seq")}
        }
        for info in self.api(f"CONSUMER.LIST.{self.stream}")["consumers"]:
            shown[info["name"]] = {
                "delivered": (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]),
                "ack_floor": (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]),
                "paused": info.get("paused", False),
                **{k: info[k] for k in info if k.startswith("num_")},
            }
        shown["got"] = [comparable(reply, self.limited) for reply in self.got]
        return shown


def comparable(reply: Reply, limited: bool) -> tuple[str, str, str, bytes]:
    """A message without what differs by nature: the time in acknowledgement subjects, and, where
    limits remove messages meanwhile, how many are pending."""
    shown = r"\1.time.n" if limited else r"\1.time.\2"
    header = _TIME.sub(shown, reply.header.decode())
    return (reply.subject, _TIME.sub(shown, reply.reply), header, reply.body)


def agree(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the views are the same; statuses and messages of different inboxes may interleave."""
    return {**ours, "got": sorted(ours["got"])} == {**theirs, "got": sorted(theirs["got"])}


def run_step(step: Step, ours: Side, theirs: Side) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Do `step` on both sides; the two views if they differ."""
    answers = (ours.step(step), theirs.step(step))
    if answers[0] != answers[1]:
        return {"answer": answers[0]}, {"answer": answers[1]}
    if step[0] == "update":
        # It may match more, or make room: nats-server hears of it with a request. One that comes
        # while it still counts anew would be served before those that wait.
        _differ(ours, theirs, COUNTING_SECONDS)
        for side in (ours, theirs):
            side.do_pull(step[1], {"batch": 1})
    return _differ(ours, theirs, PATIENCE_SECONDS)


def _differ(
    ours: Side, theirs: Side, patience: float
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The two views if they differ and go on doing so."""
    deadline = time.monotonic() + patience
    while True:
        views = (ours.view(), theirs.view())
        if agree(*views):
            return None
        if time.monotonic() > deadline:
            return views
        time.sleep(0.01)


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The fields of two views that differ, one a line."""
    lines = []
    for key in sorted({*ours, *theirs}):
        a, b = ours.get(key), theirs.get(key)
        if key == "got":
            a = [m for m in ours.get(key, []) if m not in theirs.get(key, [])]
            b = [m for m in theirs.get(key, []) if m not in ours.get(key, [])]
        if a != b:
            lines.append(f"  {key}: ours {a}\n  {' ' * len(key)}  theirs {b}")
    return "\n".join(lines)
