"""The engine driven by hand: no sockets, no clock but ours, and a disk that does what a test says.

`Driver` is a server of one engine; `Driver.client` connects a `Client`, which talks the wire
protocol and keeps what it was sent. Nothing happens behind a test's back: `advance` moves time and
stops at each timer on the way, and after ``driver.runner.hold()`` syncs and background jobs
happen when, and how, the test says.

    driver = Driver(disk).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    assert client.store("s.a", b"hello")["seq"] == 1
"""

import json
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from slipstream.engine.commit.commit import Batch, BatchJob
from slipstream.engine.engine import Authenticator, Engine
from slipstream.engine.jetstream.jetstream import JetStream
from slipstream.engine.jetstream.places import PlaceJob
from slipstream.engine.loop.clock import Clock
from slipstream.engine.protocol.group import Group
from slipstream.engine.protocol.options import AccountJetStreamLimits, AccountLimits, EngineOptions
from slipstream.engine.session.account import Account
from slipstream.engine.session.session import STALL
from slipstream.log.commit_log import FILE_BYTES
from slipstream.log.disk import Disk
from slipstream.log.durability import Job
from slipstream.log.file_log import SEGMENT_BYTES
from slipstream.log.stream_store import Store
from slipstream.model.durations import SECOND
from slipstream.wire.headers import fields, status

APPLIED_FIRST = 1  # small files that a start writes: a life has few, and some are to be left
BEGIN = 1_700_000_000 * SECOND
TURNS_MAX = 100_000  # of the engine without an end: it is busy with itself
CONNECT = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}


class RecordingTransport:
    """Keeps what was written; `backlog` is what the peer is said not to have taken yet."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.backlog = 0
        self.is_read = True  # False: the engine wants nothing more from the peer for now
        self.stalls = 0  # how often it was to rest, because somebody else does not keep up
        self.closed = False

    def write(self, data: bytes) -> None:
        """Keep what the engine writes."""
        self.written += data

    def write_parts(self, parts: list[bytes]) -> None:
        """Keep what the engine writes."""
        self.written += b"".join(parts)

    def pending(self) -> int:
        """The backlog that the test has set."""
        return self.backlog

    def pause_reading(self) -> None:
        """Note that the engine reads no more."""
        self.is_read = False

    def resume_reading(self) -> None:
        """Note that the engine reads again."""
        self.is_read = True

    def stall(self) -> None:
        """Count a rest."""
        self.stalls += 1

    def close(self) -> None:
        """Note that the connection is closed."""
        self.closed = True

    def abort(self) -> None:
        """Note that the connection is closed."""
        self.closed = True


class Held:
    """A job on its way to the disk: first it runs, then it is finished."""

    def __init__(self, runner: "HandRunner", job: Job) -> None:
        self._runner = runner
        self.job = job
        self.ran = False

    @property
    def batch(self) -> Batch | None:
        """What the job writes and syncs, if it is a stream's batch."""
        return self.job.batch if isinstance(self.job, BatchJob) else None

    def run(self) -> None:
        """The blocking part, which a server does on a thread."""
        self.ran = True
        self._runner.blocking(self.job)

    def finish(self) -> None:
        """What a server does on its loop afterwards."""
        self._runner.finished(self.job)


class HandRunner:
    """The commit's runner: runs jobs at once or, while held, when told to, in order."""

    def __init__(self) -> None:
        self.held = False
        self.holds_reads = False  # whether reads wait with the rest
        self.waiting: deque[Held] = deque()
        self.runs = 0

    def hold(self) -> None:
        """From now on jobs wait for `release` or `step`."""
        self.held = True

    def start(self, job: Job) -> None:
        """Run a job now or when told to."""
        item = Held(self, job)
        if self.held:
            self.waiting.append(item)
        else:
            item.run()
            item.finish()

    def start_aside(self, job: Job, comes_first: bool = False) -> None:
        """Run a job now or when told to; there is no second thread here."""
        self.start(job)

    def start_beside(self, job: Job) -> None:
        """Run a job now or when told to, as the others."""
        self.start(job)

    def start_read(self, job: Job) -> None:
        """Run a job that only reads now, or when told to if reads are held, too."""
        if self.holds_reads:
            self.start(job)
        else:
            job.run()
            job.finish()

    def run_here(self, job: Job, size: int, is_second: bool) -> bool:
        """Never: a job that runs at once does so in `start`."""
        return False

    def blocking(self, job: Job) -> None:
        """Run a job's blocking part; the place to be unfaithful in a planted bug."""
        self.runs += 1
        job.run()

    def finished(self, job: Job) -> None:
        """A job has run: what follows; another such place."""
        job.finish()

    def step(self, ahead: bool = False) -> bool:
        """Do one thing: run the oldest that waits, or finish it if it ran. False if none waits.

        With `ahead` the next one runs before the engine is told that those before it have.
        """
        if not self.waiting:
            return False
        item = self.waiting[0]
        if ahead:
            item = next((other for other in self.waiting if not other.ran), item)
        if item.ran:
            self.waiting.popleft()
            item.finish()
        else:
            item.run()
        return True

    def release(self, error: OSError | None = None) -> None:
        """Run and finish all that waits now; with `error`, each fails by that instead.

        `Driver.finish` is to follow, as the end of the turn.
        """
        waiting, self.waiting = self.waiting, deque()
        for item in waiting:
            if error is not None:
                failing: Any = item.batch or item.job
                failing.error = error
            elif not item.ran:
                item.run()
            item.finish()


class Message:
    """One message that a client was sent."""

    def __init__(self, subject: str, sid: str, reply: str, header: bytes, body: bytes) -> None:
        self.subject = subject
        self.sid = sid
        self.reply = reply
        self.header = header
        self.body = body

    @property
    def status(self) -> str:
        """Code and description of a status message; "" for an ordinary one."""
        code, text = status(self.header)
        return f"{code} {text}".strip() if code else ""

    @property
    def fields(self) -> dict[str, str]:
        """The header's fields."""
        return {name.decode(): value.decode() for name, value in fields(self.header)}

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"Message({self.subject!r}, {self.reply!r}, {self.header!r}, {self.body!r})"


class Client:
    """One connection, subscribed (sid 1) to `_INBOX.t.*` for the answers to its requests."""

    def __init__(self, driver: "Driver", account: Account | None = None, **options: Any) -> None:
        self.driver = driver
        self.transport = RecordingTransport()
        session = driver.engine.open_session(self.transport, ip="127.0.0.1", port=1)
        assert session is not None
        self.session = session
        self.lines: list[bytes] = []  # all that was no message: INFO, PONG, -ERR ...
        self._inboxes = 0
        self._rest = b""
        self.send(b"CONNECT %b\r\n" % json.dumps(CONNECT | options).encode())
        if account is not None:
            session.account = account
        self.send(b"SUB _INBOX.t.* 1\r\n")
        self.take()

    @property
    def errors(self) -> list[bytes]:
        """The texts of `-ERR` so far."""
        return [line[5:].strip(b"' ") for line in self.lines if line.startswith(b"-ERR")]

    def send(self, data: bytes) -> None:
        """Bytes from the client, as one read; then the turn ends.

        If the client had to rest because others do not keep up, that is over now.
        """
        if self.session.stopped_by & STALL and not self.driver.engine.is_crowded:
            self.session.release(STALL)
        self.session.receive(data)
        self.driver.finish()

    def subscribe(self, subject: str, sid: int = 2) -> None:
        """Subscribe."""
        self.send(f"SUB {subject} {sid}\r\n".encode())

    def publish(
        self,
        subject: str,
        body: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish one message."""
        self.send(encode(subject, body, reply, headers))

    @property
    def inbox(self) -> str:
        """Where answers to the last request go."""
        return f"_INBOX.t.{self._inboxes}"

    def ask(
        self, subject: str, body: Any = b"", headers: dict[str, str] | None = None
    ) -> list[Message]:
        """Send a request, as JSON unless `body` is bytes; everything that came back at once."""
        self._inboxes += 1
        inbox = self.inbox
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(subject, payload, inbox, headers)
        return [message for message in self.take() if message.subject == inbox]

    def request(
        self, subject: str, body: Any = b"", headers: dict[str, str] | None = None
    ) -> Message:
        """The one answer to a request."""
        answers = self.ask(subject, body, headers)
        assert len(answers) == 1, answers
        return answers[0]

    def api(self, subject: str, body: Any = b"", headers: dict[str, str] | None = None) -> Any:
        """A JetStream API call, `subject` without ``$JS.API.``; its JSON."""
        return self.request("$JS.API." + subject, body, headers).json()

    def store(self, subject: str, body: bytes = b"x", **headers: str) -> Any:
        """Publish and return the acknowledgement; header names are written with _ for -."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request(subject, body, fields or None).json()

    def messages(self, stream: str, settle: Callable[[], None] | None = None) -> dict[int, Message]:
        """All that a stream gives out by its API, by sequence. `settle` has the disk do what an
        answer may wait for."""
        subject = f"$JS.API.STREAM.MSG.GET.{stream}"
        found: dict[int, Message] = {}
        seq = 0
        while True:
            asked = {"seq": seq + 1, "next_by_subj": ">"}
            answers = self.ask(subject, asked)
            if not answers and settle is not None:
                settle()
                answers = self.take()
                if "error" in answers[0].json():  # what it waited for has failed, in part perhaps
                    answers = self.ask(subject, asked)
                    if not answers:
                        settle()
                        answers = self.take()
            assert len(answers) == 1, answers
            answer = answers[0].json()
            if "error" in answer:
                return found
            stored = answer["message"]
            header, body = (b64decode(stored.get(key, "")) for key in ("hdrs", "data"))
            seq = stored["seq"]
            found[seq] = Message(stored["subject"], "", "", header, body)

    def take(self) -> list[Message]:
        """The messages that came since the last call; other lines go to `lines`.

        That includes what the engine holds back because of the transport's `backlog`. What asked
        whether the client is still there is answered.
        """
        self.driver.engine.flush(self.session)
        data = self._rest + bytes(self.transport.written)
        self.transport.written = bytearray()
        found = []
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            words = line.decode().split(" ")
            if words[0] not in ("MSG", "HMSG"):
                self.lines.append(line)
                at = end + 2
                continue
            size = int(words[-1])
            start = end + 2
            if len(data) < start + size + 2:
                break
            header = int(words[-2]) if words[0] == "HMSG" else 0
            fixed = 5 if words[0] == "HMSG" else 4
            reply = words[3] if len(words) > fixed else ""
            block, body = data[start : start + header], data[start + header : start + size]
            found.append(Message(words[1], words[2], reply, block, body))
            at = start + size + 2
        self._rest = data[at:]
        if b"PING" in self.lines:
            self.lines.remove(b"PING")
            self.send(b"PONG\r\n")
        return found


def encode(
    subject: str, body: bytes, reply: str = "", headers: dict[str, str] | None = None
) -> bytes:
    """The frame that publishes a message."""
    target = f"{subject} {reply}".rstrip().encode()
    if headers is None:
        return b"PUB %b %d\r\n%b\r\n" % (target, len(body), body)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    total = len(block) + len(body)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(block), total, block, body)


class Driver:
    """An engine with JetStream; file streams lie on `disk` under `root`, in memory if None."""

    def __init__(
        self,
        disk: Disk | None = None,
        options: EngineOptions | None = None,
        now: int = BEGIN,
        runner: HandRunner | None = None,
        authenticator: Authenticator | None = None,
        seed: int = 1,
        segment_bytes: int = SEGMENT_BYTES,
        log_bytes: int = FILE_BYTES,
        group: Group | None = None,
        root: str = "store",
    ) -> None:
        self.clock = Clock(now)
        self.runner = runner or HandRunner()
        self.options = options or EngineOptions(server_name="here", jetstream=True)
        self.engine = Engine(
            self.clock, Random(seed), self.options, self.runner, authenticator, group
        )
        self.gathers = False  # whether the next turns leave what they stored to a later one
        self.store: Store | None = None
        if disk is not None:
            self.store = Store(
                disk, root, segment_bytes=segment_bytes, log_bytes=log_bytes,
                applied_first=APPLIED_FIRST if group is None else None,
            )  # fmt: skip

    def start(self, **limits: Any) -> "Driver":
        """Start JetStream; `limits` are `AccountJetStreamLimits` of the default account."""
        if limits:
            bounded = AccountLimits(jetstream=AccountJetStreamLimits(**limits))
            self.engine.default_account.limits = bounded
        self.engine.start_jetstream(self.store)
        self.finish()
        return self

    @property
    def js(self) -> JetStream:
        """JetStream of the default account."""
        found: JetStream = self.engine.default_account.jetstream
        return found

    def client(self, account: Account | None = None, **options: Any) -> Client:
        """A new connection; `options` are fields of CONNECT."""
        return Client(self, account, **options)

    def finish(self) -> None:
        """End the turn, and all those that it asks for."""
        if self.gathers:
            self.engine.rounds.finish_turn(gathers=True)
            return
        for _ in range(TURNS_MAX):
            if not self.engine.rounds.finish_turn():
                return
            self.engine.rounds.go_on()
        raise AssertionError("the engine does not come to rest")

    def settle_log(self) -> int:
        """Have the commit log's entries written and synced, while messages wait for the disk; how
        many there were."""
        waiting = self.runner.waiting
        count = 0
        while mine := [held for held in waiting if self._is_entry(held)]:
            waiting.remove(mine[0])
            mine[0].run()
            mine[0].finish()
            self.finish()
            count += 1
        return count

    def make_places(self, ends_turn: bool = True) -> int:
        """Have new streams get their places on the disk, and be created in one turn, while all else
        waits for the disk; how many there were."""
        waiting = self.runner.waiting
        mine = [held for held in waiting if isinstance(held.job, PlaceJob)]
        for held in mine:
            waiting.remove(held)
            held.run()
        for held in mine:
            held.finish()
        if ends_turn:
            self.finish()
        return len(mine)

    def _is_entry(self, held: Held) -> bool:
        return isinstance(held.job, BatchJob) and held.job.stream is self.engine.state

    def advance(self, ns: int) -> None:
        """Let time pass, stopping wherever a timer is due."""
        end = self.clock.now + ns
        while True:
            due = self.engine.timers.next_at()
            if not due or due > end:
                break
            self.clock.now = max(due, self.clock.now)
            self.engine.tick()
            self.finish()
        self.clock.now = end
        self.finish()

    def stop(self) -> None:
        """Shut down in order: what is on its way ends, streams are synced and closed."""
        self.runner.release()
        self.finish()
        self.engine.close()
