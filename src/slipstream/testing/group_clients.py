"""Clients of a simulated group: each makes one call after the other, and goes where somebody leads.

Calls are of all kinds that a group has to keep its word for; `EngineHistory` has their beginnings
and ends. A client whose connection ends, or who has waited for long, does not know what became of
its call, and goes on with another one.
"""

import json
from base64 import b64decode
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeAlias

from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_names import (
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE,
    NATS_INCR,
    NATS_MSG_ID,
)
from slipstream.testing.driver import Message, encode
from slipstream.testing.engine_history import NOBODY, EngineHistory
from slipstream.testing.ledger import ViolationError
from slipstream.testing.linearizability import Call, Value

STREAM, VALUES, COUNTERS = "S", "K", "C"
CONSUMER = "w"
WAIT_MAX = 6 * SECOND  # for an answer
ACK_WAIT = SECOND
FETCHES = 100  # from this number on, subscriptions are of fetches
STREAMS: list[dict[str, object]] = [
    {"name": STREAM, "subjects": ["s.>"], "duplicate_window": 3600 * SECOND, "allow_direct": True},
    {"name": VALUES, "subjects": ["k.>"], "max_msgs_per_subject": 1, "allow_direct": True},
    {"name": COUNTERS, "subjects": ["c.>"], "allow_msg_counter": True, "allow_direct": True},
]

MISSING = (ErrorCode.STREAM_NOT_FOUND, ErrorCode.CONSUMER_NOT_FOUND)

Answered = Callable[[Message], None]
Found: TypeAlias = Value  # what is answered: a document, or a message that is none
Outcome: TypeAlias = tuple[object, bool] | None  # of a call: the answer, whether it is a refusal
Judge: TypeAlias = Callable[[Found], Outcome]


class Line(Protocol):
    """A client's connection, as the simulation has it."""

    def send(self, data: bytes) -> None:
        """Have bytes reach the server, after those before them."""

    def close(self) -> None:
        """End it."""


class World(Protocol):
    """Who simulates the group."""

    random: Random
    now: int

    def connect(self, caller: "Caller") -> Line | None:
        """A connection with a server that says it leads, if there is one."""

    def note(self, text: str) -> None:
        """Tell the story."""

    def after(self, delay: int, event: Callable[[], None]) -> None:
        """Have something happen later."""


class Caller:
    """One client. `taken` and `lost` are called by the simulation."""

    def __init__(self, name: str, world: World, workload: "Workload") -> None:
        self.name = name
        self.number = 0  # of its last request
        self._world = world
        self._workload = workload
        self._line: Line | None = None
        self._answered: Answered | None = None
        self._lost: Callable[[], None] = lambda: None
        self.fetched: dict[int, str] = {}  # where to acknowledge, by sequence
        self.sees_memory = False  # what it was just sent may show what no disk had space for

    @property
    def is_idle(self) -> bool:
        """Whether it may make a call."""
        return self._answered is None

    @property
    def has_line(self) -> bool:
        """Whether it has, or gets, a connection."""
        if self._line is None:
            self._line = self._world.connect(self)
            self.fetched.clear()
        return self._line is not None

    def ask(
        self,
        subject: str,
        body: bytes,
        answered: Answered,
        headers: dict[str, str] | None = None,
        lost: Callable[[], None] = lambda: None,
        inbox: str = "",
    ) -> None:
        """Send a request on the connection that is there; answers come to `inbox`, if it is given,
        whoever has subscribed to that."""
        assert self._line is not None
        self.number += 1
        number = self.number
        self._answered, self._lost = answered, lost
        self._line.send(encode(subject, body, inbox or self._inbox, headers))

        def give_up() -> None:
            if self.number == number and self._answered is not None:
                self._world.note(f"{self.name} waits no longer")
                if self._line is not None:
                    self._line.close()
                self.lost()

        self._world.after(WAIT_MAX, give_up)

    def subscribe(self, subject: str, sid: int) -> None:
        """Subscribe."""
        assert self._line is not None
        self._line.send(b"SUB %b %d\r\n" % (subject.encode(), sid))

    @property
    def _inbox(self) -> str:
        """Where the answer to the last request goes: all clients are subscribed to its like."""
        return f"_INBOX.t.{self.name}-{self.number}"

    def done(self) -> None:
        """The request is over."""
        self._answered, self._lost = None, lambda: None

    def taken(self, messages: list[Message], shows_memory: bool) -> None:
        """The server has sent something; whether, for want of space, it `shows_memory`."""
        self.sees_memory = shows_memory
        for message in messages:
            if message.sid != "1":
                self._workload.fetched(self, message)
            elif self._answered is not None and message.subject == self._inbox:
                self._answered(message)

    def lost(self) -> None:
        """The connection has ended."""
        self._line = None
        lost = self._lost
        self.done()
        lost()


class Workload:
    """What clients do."""

    def __init__(self, world: World, history: EngineHistory, callers: int = 4) -> None:
        self.world = world
        self.history = history
        self.random = world.random
        self.callers = [Caller(f"c{n}", world, self) for n in range(1, callers + 1)]
        self.is_over = False  # whether clients make no more calls on their own
        self._number = 0
        self._retries: list[tuple[str, bytes, str]] = []  # messages whose outcome is unknown
        self._stored: list[int] = []  # sequences of the stream
        self._seen: dict[str, tuple[int, int]] = {}  # sequence and number last seen, by subject
        self._fetches: dict[str, Call] = {}  # by the number of their subscription
        self.kinds: list[tuple[int, Callable[[Caller], None]]] = [
            (8, self._publish),
            (2, self._publish_again),
            (6, self._put),
            (6, self._put_expecting),
            (9, self._get),
            (1, self._purge),
            (1, self._delete),
            (6, self._add),
            (4, self._read_total),
            (2, self._create),
            (2, self._drop),
            (2, self._look),
            (2, self._look_at_stream),
            (2, self._look_at_position),
            (5, self._fetch),
            (8, self._acknowledge),
            (1, self._remove),
        ]

    def act(self) -> None:
        """Have a client make a call, if one is idle."""
        idle = [caller for caller in self.callers if caller.is_idle]
        if not idle:
            return
        caller = self.random.choice(idle)
        if caller.has_line:
            (kind,) = self.random.choices(
                [kind for _, kind in self.kinds], [weight for weight, _ in self.kinds]
            )
            kind(caller)

    # -- asking ----------------------------------------------------------------------------------

    def _ask(
        self,
        caller: Caller,
        call: Call,
        subject: str,
        body: bytes,
        judge: Judge,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send a request; `judge` gives the outcome and whether it is a refusal, of a document or
        of a message that is none. None: it is not known what it means."""
        shown = str(call.argument)[:40]
        self.world.note(f"{caller.name} {call.start} {call.kind} {call.key} {shown}")

        def answered(message: Message) -> None:
            is_document = not message.header and message.body.startswith(b"{")
            if message.status.startswith("503"):
                raise ViolationError(f"durable: nobody answers to {subject}")
            outcome = judge(message.json() if is_document else message)
            caller.done()
            text = f"{caller.name} {call.start} is answered {outcome}"
            self.world.note(text if outcome else f"{text}: {message.body[:200]!r}")
            if outcome is not None:
                self.history.end(call, *outcome)
            if not self.is_over and self.random.random() < 0.6:
                self.world.after(self.random.randrange(20_000_000), self.act)

        def lost() -> None:
            if call.kind == "publish":
                self._retries.append((subject, body, headers[NATS_MSG_ID] if headers else ""))

        caller.ask(subject, body, answered, headers, lost)

    def _api(
        self,
        caller: Caller,
        call: Call,
        subject: str,
        body: object,
        judge: Judge,
    ) -> None:
        text = json.dumps(body).encode() if body else b""
        self._ask(caller, call, f"$JS.API.{subject}", text, judge)

    # -- a stream --------------------------------------------------------------------------------

    def _publish(self, caller: Caller) -> None:
        self._number += 1
        body = b"%d:" % self._number + b"." * self.random.choice((0, 10, 300, 3_000))
        message_id = f"id-{self._number}" if self.random.random() < 0.5 else ""
        self._send(caller, self.random.choice(("s.a", "s.b")), body, message_id)

    def _publish_again(self, caller: Caller) -> None:
        """Of what may be stored or not, with an id: it is stored once."""
        again = [one for one in self._retries if one[2]]
        if again:
            self._send(caller, *self.random.choice(again))

    def _send(self, caller: Caller, subject: str, body: bytes, message_id: str) -> None:
        def judge(found: Found) -> Outcome:
            if "error" in found:
                return None
            self._stored.append(found["seq"])
            return found["seq"], False

        call = self.history.begin("publish", "", body)
        headers = {NATS_MSG_ID: message_id} if message_id else None
        self._ask(caller, call, subject, body, judge, headers)

    def _remove(self, caller: Caller) -> None:
        if self._stored:
            seq = self.random.choice(self._stored)
            call = self.history.begin("remove", "", seq)
            self._api(caller, call, f"STREAM.MSG.DELETE.{STREAM}", {"seq": seq}, _removed)

    # -- last values -----------------------------------------------------------------------------

    def _subject(self) -> str:
        return self.random.choice(("k.a", "k.b", "k.c"))

    def _put(self, caller: Caller, expected: int | None = None, subject: str = "") -> None:
        subject = subject or self._subject()
        self._number += 1
        number = self._number

        def judge(found: Found) -> Outcome:
            error = found.get("error")
            if error:
                if error["err_code"] != ErrorCode.STREAM_WRONG_LAST_SEQUENCE:
                    return None
                last = int(error["description"].rpartition(" ")[2])
                if caller.sees_memory and not last:  # what was removed may come back
                    return None
                return last, True
            self._seen[subject] = (found["seq"], number)
            return found["seq"], False

        call = self.history.begin("put", f"value:{subject}", (number, expected))
        headers = {NATS_EXPECTED_LAST_SUBJECT_SEQUENCE: str(expected)}
        body = b"%d" % number
        self._ask(caller, call, subject, body, judge, None if expected is None else headers)

    def _put_expecting(self, caller: Caller) -> None:
        subject = self._subject()
        self._put(caller, self._seen.get(subject, (0, NOBODY))[0], subject)

    def _get(self, caller: Caller, subject: str = "") -> None:
        subject = subject or self._subject()

        def judge(found: Found) -> Outcome:
            answer = _last(found)
            if answer is None or (caller.sees_memory and not answer[0]):  # it may come back
                return None
            seq, body = answer
            self._seen[subject] = (seq, int(body))
            return (seq, int(body)), False

        self._read(caller, self.history.begin("get", f"value:{subject}"), VALUES, subject, judge)

    def _read(
        self,
        caller: Caller,
        call: Call,
        stream: str,
        subject: str,
        judge: Judge,
    ) -> None:
        way = self.random.randrange(3)
        if way == 0:
            self._api(caller, call, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, judge)
        elif way == 1:
            self._api(caller, call, f"DIRECT.GET.{stream}", {"last_by_subj": subject}, judge)
        else:
            self._api(caller, call, f"DIRECT.GET.{stream}.{subject}", None, judge)

    def _purge(self, caller: Caller) -> None:
        subject = self._subject()
        call = self.history.begin("purge", f"value:{subject}")
        self._api(caller, call, f"STREAM.PURGE.{VALUES}", {"filter": subject}, _succeeded)

    def _delete(self, caller: Caller) -> None:
        subject = self._subject()
        seq = self._seen.get(subject, (0, NOBODY))[0]
        if seq:
            call = self.history.begin("delete", f"value:{subject}", seq)
            self._api(caller, call, f"STREAM.MSG.DELETE.{VALUES}", {"seq": seq}, _removed)

    # -- counters --------------------------------------------------------------------------------

    def _add(self, caller: Caller) -> None:
        subject = self.random.choice(("c.a", "c.b"))
        more = self.random.choice((-3, 1, 2, 1000))
        call = self.history.begin("add", f"total:{subject}", more)

        def judge(found: Found) -> Outcome:
            return None if "error" in found else (int(found["val"]), False)

        self._ask(caller, call, subject, b"", judge, {NATS_INCR: str(more)})

    def _read_total(self, caller: Caller, subject: str = "") -> None:
        subject = subject or self.random.choice(("c.a", "c.b"))

        def judge(found: Found) -> Outcome:
            answer = _last(found)
            if answer is None:
                return None
            total = int(json.loads(answer[1])["val"]) if answer[0] else 0
            return total, False

        call = self.history.begin("total", f"total:{subject}")
        self._read(caller, call, COUNTERS, subject, judge)

    # -- streams and consumers that come and go --------------------------------------------------

    def _name(self) -> str:
        return self.random.choice(("T0", "T1", f"{STREAM}.x0", f"{STREAM}.x1"))

    def _create(self, caller: Caller) -> None:
        name = self._name()
        call = self.history.begin("create", f"name:{name}")
        stream, _, consumer = name.partition(".")
        if consumer:
            config: dict[str, object] = {"durable_name": consumer, "ack_policy": "explicit"}
            asked = {"stream_name": stream, "config": config}
            subject = f"CONSUMER.DURABLE.CREATE.{name}"
            self._api(caller, call, subject, asked, _succeeded)
        else:
            config = {"name": name, "subjects": [f"{name}.>"]}
            self._api(caller, call, f"STREAM.CREATE.{name}", config, _succeeded)

    def _drop(self, caller: Caller) -> None:
        name = self._name()
        call = self.history.begin("drop", f"name:{name}")
        kind = "CONSUMER" if "." in name else "STREAM"
        self._api(caller, call, f"{kind}.DELETE.{name}", None, _dropped)

    def _look(self, caller: Caller, name: str = "") -> None:
        name = name or self._name()
        call = self.history.begin("look", f"name:{name}")

        def judge(found: Found) -> Outcome:
            error = found.get("error")
            if caller.sees_memory:
                return None
            if error and error["err_code"] not in (
                ErrorCode.STREAM_NOT_FOUND,
                ErrorCode.CONSUMER_NOT_FOUND,
            ):
                return None
            return int(not error), False

        kind = "CONSUMER" if "." in name else "STREAM"
        self._api(caller, call, f"{kind}.INFO.{name}", None, judge)

    # -- what information says -------------------------------------------------------------------

    def _look_at_stream(self, caller: Caller) -> None:
        """Where the stream ends."""

        def judge(found: Found) -> Outcome:
            return None if "error" in found else (found["state"]["last_seq"], False)

        call = self.history.begin("end", "")
        self._api(caller, call, f"STREAM.INFO.{STREAM}", None, judge)

    def _look_at_position(self, caller: Caller) -> None:
        """Up to where the consumer's messages are settled."""

        def judge(found: Found) -> Outcome:
            is_promised = "error" not in found and not caller.sees_memory
            return (found["ack_floor"]["stream_seq"], False) if is_promised else None

        call = self.history.begin("floor", "")
        self._api(caller, call, f"CONSUMER.INFO.{STREAM}.{CONSUMER}", None, judge)

    # -- a consumer ------------------------------------------------------------------------------

    def _fetch(self, caller: Caller) -> None:
        call = self.history.begin("fetch", "", self.random.randint(1, 5))
        sid = FETCHES + call.start
        self._fetches[str(sid)] = call
        self.world.note(f"{caller.name} {call.start} fetches {call.argument}")
        caller.subscribe(f"_INBOX.w.{sid}", sid)
        body = json.dumps({"batch": call.argument, "expires": SECOND // 5}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
        caller.ask(subject, body, lambda message: None, inbox=f"_INBOX.w.{sid}")

    def fetched(self, caller: Caller, message: Message) -> None:
        """A message, or a status, has come for a fetch, maybe one that the client has given up."""
        call = self._fetches[message.sid]
        if message.reply:
            seq = int(message.reply.split(".")[5])
            self.world.note(f"{caller.name} {call.start} got {seq}")
            self.history.delivered(call, seq, message.body)
            caller.fetched[seq] = message.reply
            call.argument -= 1
        is_over = not call.argument if message.reply else not message.status.startswith("100")
        if is_over and not call.is_known:
            self.history.end(call, None)
            caller.done()

    def _acknowledge(self, caller: Caller) -> None:
        if not caller.fetched:
            return
        seq = self.random.choice(sorted(caller.fetched))
        reply = caller.fetched.pop(seq)
        call = self.history.begin("settle", "", seq)
        text = self.random.choice((b"", b"+ACK", b"+TERM"))
        self._ask(caller, call, reply, text, lambda found: (None, False))

    # -- the beginning and the end ---------------------------------------------------------------

    def prepare(self, ready: Callable[[], None]) -> None:
        """Create what all calls are about; then `ready`."""
        caller = self.callers[0]
        asked = [(f"STREAM.CREATE.{config['name']}", config) for config in STREAMS]
        durable = {"durable_name": CONSUMER, "ack_policy": "explicit", "ack_wait": ACK_WAIT}
        body: dict[str, object] = {"stream_name": STREAM, "config": durable}
        asked.append((f"CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", body))

        def go_on() -> None:
            if not asked:
                ready()
            elif not caller.is_idle or not caller.has_line:
                self.world.after(SECOND // 20, go_on)
            else:
                subject, config = asked[0]
                data = json.dumps(config).encode()
                caller.ask(f"$JS.API.{subject}", data, created, lost=go_on)

        def created(message: Message) -> None:
            caller.done()
            if "error" not in message.json():
                asked.pop(0)
            go_on()

        go_on()

    def read_all(self, ready: Callable[[], None]) -> None:
        """Read everything there is; then `ready`."""
        caller = Caller(f"r{self.history.moment}", self.world, self)
        steps: list[Callable[[Caller], None]] = [self._look_at_stream, self._look_at_position]
        for subject in ("k.a", "k.b", "k.c"):
            steps.append(lambda caller, subject=subject: self._get(caller, subject))  # type: ignore[misc]
        for subject in ("c.a", "c.b"):
            steps.append(lambda caller, subject=subject: self._read_total(caller, subject))  # type: ignore[misc]
        for name in ("T0", "T1", f"{STREAM}.x0", f"{STREAM}.x1"):
            steps.append(lambda caller, name=name: self._look(caller, name))  # type: ignore[misc]
        content: dict[int, tuple[str, bytes]] = {}

        def go_on() -> None:
            if not caller.is_idle or not caller.has_line:
                self.world.after(SECOND // 50, go_on)
            elif steps:
                steps.pop(0)(caller)
                self.world.after(SECOND // 50, go_on)
            else:
                read(1)

        def read(seq: int) -> None:
            asked = {"seq": seq, "next_by_subj": ">"}
            data = json.dumps(asked).encode()
            caller.ask(f"$JS.API.STREAM.MSG.GET.{STREAM}", data, taken, lost=go_on)

        def taken(message: Message) -> None:
            caller.done()
            found = message.json()
            if "error" in found:
                if found["error"]["err_code"] != ErrorCode.NO_MESSAGE_FOUND:
                    raise ViolationError(f"durable: the stream cannot be read: {found}")
                self.history.found(content)
                ready()
                return
            stored = found["message"]
            content[stored["seq"]] = (stored["subject"], b64decode(stored.get("data", "")))
            read(stored["seq"] + 1)

        go_on()


def _last(found: Found) -> tuple[int, bytes] | None:
    """Sequence and body of a subject's last message; (0, b"0") if there is none."""
    if isinstance(found, Message):
        if found.status.startswith("404"):
            return 0, b"0"
        return int(found.fields["Nats-Sequence"]), found.body
    if "error" in found:
        return (0, b"0") if found["error"]["err_code"] == ErrorCode.NO_MESSAGE_FOUND else None
    stored = found["message"]
    return stored["seq"], b64decode(stored.get("data", ""))


def _succeeded(found: Found) -> Outcome:
    return None if "error" in found else (None, False)


def _removed(found: Found) -> Outcome:
    error = found.get("error")
    if not error:
        return None, False
    return (None, True) if "no message found" in error["description"] else None


def _dropped(found: Found) -> Outcome:
    error = found.get("error")
    if not error:
        return None, False
    return (None, True) if error["err_code"] in MISSING else None
