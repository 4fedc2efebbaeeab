"""A feed: the messages of one upstream, brought to a stream by a consumer of the upstream.

The feed uses nothing but the account's subjects, as a client would: it sends a request to create a
consumer, listens where that delivers, answers its flow control and minds its heartbeats. So it does
not matter where the upstream is: with an API prefix and a deliver prefix it is reached through
whatever carries these subjects.

    due ──request──> asked ──consumer made──> following ──silence, a gap, an error──> due again

A feed knows the upstream's sequence of the last message that it has taken over, its `position`.
What the consumer delivers up to there is passed over, and a consumer whose numbers have a gap is
replaced by one that begins after the position. Answers to flow control wait until what came before
them is durable: so there is a bound on what is on its way, and an upstream that is a work queue may
remove what they cover.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from slipstream.engine.protocol.configurations import StreamSource
from slipstream.engine.protocol.errors import ApiError, ErrorBody
from slipstream.engine.protocol.json_body import INT64_MAX, parse, read_number
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Follower, Service
from slipstream.engine.stream.upstream_checks import API_PREFIX, index_name, short_hash
from slipstream.errors import StorageError
from slipstream.log.segment import SEQUENCE_MAX
from slipstream.model.ack_subject import NUMBERS, AckSubject, ack_head, is_ack_subject
from slipstream.model.durations import SECOND
from slipstream.model.error_codes import ErrorCode
from slipstream.model.header_fields import (
    NATS_BATCH_PREFIX,
    NATS_CONSUMER_STALLED,
    NATS_EXPECTED_PREFIX,
    NATS_LAST_CONSUMER,
    NATS_LAST_STREAM,
    NATS_REQUIRED_API_LEVEL,
    NATS_STREAM_IDENTITY,
)
from slipstream.wire.headers import find, with_fields, without_prefixed
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.transforms import Transform

if TYPE_CHECKING:
    from slipstream.engine.protocol.infos import StreamSourceInfo
    from slipstream.engine.stream.stream import Stream

_int = int  # the name `int` in a compiled module's annotations is a C type

NO_LEVELS: tuple[bytes, ...] = (b"",)
FIRST_AFTER_NS: _int = SECOND // 20  # so that other streams are there when a server starts
AGAIN_AFTER_NS: _int = 2 * SECOND  # the least time between two requests
AGAIN_AFTER_NS_MAX: _int = 30 * SECOND
ANSWER_NS_MAX: _int = 30 * SECOND  # what an answer may take
RESET_ANSWER_NS_MAX: _int = 5 * SECOND  # ... where somebody else has made the consumer
HEARTBEAT_NS: _int = SECOND
INACTIVE_NS_MAX: _int = 10 * SECOND  # after which the consumer is taken to have gone
ACK_WAIT_NS: _int = 22 * 3600 * SECOND
TAKE_STEPS: _int = 20  # what taking a message over costs beside its delivery (see `turn`)

_HEADER_NAMES_REMOVED = (NATS_EXPECTED_PREFIX, NATS_BATCH_PREFIX)


_Sequence = Annotated[int, msgspec.Meta(ge=0, le=SEQUENCE_MAX)]


class _Delivered(msgspec.Struct):
    stream_seq: _Sequence = 0


class _Consumer(msgspec.Struct):
    """What a feed needs to know of its consumer."""

    ack_policy: str = ""
    durable_name: str = ""


class ConsumerAnswer(msgspec.Struct):
    """The answer to a request to create or reset a consumer."""

    error: ErrorBody | None = None
    stream_name: str = ""
    name: str = ""
    config: _Consumer = msgspec.field(default_factory=_Consumer)
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)
    num_pending: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] = 0


class _Answers(Service):
    """Takes the answer to one request of a feed."""

    def __init__(self, feed: "Feed") -> None:
        self._feed = feed

    def handle(self, message: Inbound) -> _int:
        self._feed.answered(message)
        return 1


class Feed(Follower):
    """Brings one upstream's messages to `stream`; mirrors and sources say what becomes of them."""

    kind = ""  # of consumer, in its name
    letter = ""  # in the deliver subject
    metadata = ""  # what the consumer's metadata begin with
    levels = NO_LEVELS  # of the API, the best first; b"" asks for none
    # The error where a consumer that somebody has made acks otherwise.
    requires_flow_acks = ErrorCode.STREAM_GENERAL_ERROR

    def __init__(self, stream: "Stream", source: StreamSource) -> None:
        self.stream = stream
        self.source = source
        self.account = stream.account
        self.clock = stream.clock
        self.index = index_name(source)
        self.position = 0  # the upstream's sequence up to which everything was taken over
        self.identity = b""  # of the upstream; b"" if that is not known
        self.lag = 0  # messages that the upstream still has for this feed
        self.heard_at = 0  # ns; 0 is never
        self.error: ErrorBody | None = None
        self.stopped = False
        self._timers = stream.engine.timers
        self._turn = stream.turn
        self._timer: Any = None
        self._answers = _Answers(self)
        self._reply = b""  # where the answer to the open request goes; b"" when there is none
        self._asked_at = 0
        self._fails = 0
        self._level_at = 0  # which level the upstream's server seems to have
        self._consumer = b""  # its name; b"" when there is none
        self._durable = ""  # its name, if it has to be deleted when the feed ends
        self._subject = b""  # where it delivers
        self._ack = AckSubject()
        self._ack_head = b""  # what the reply subjects of its messages begin with
        self._delivered = 0  # the consumer's sequence of the last message
        self._delivered_seq = 0  # the upstream's, of the same message
        self._transforms: list[Transform | None] = []
        self._patterns = PatternTrie()  # places in that list, by what each of them is for
        for place, one in enumerate(source.subject_transforms):
            made = Transform(one.src, one.dest, stream.engine.random) if one.dest else None
            self._transforms.append(made)
            self._patterns.insert((one.src or ">").encode(), place)

    # -- what a mirror and a source say ----------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """Where the consumer is to begin, as fields of its configuration: here, as the stream's
        configuration says, which is for when nothing was taken over yet."""
        source = self.source
        if source.opt_start_seq:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": source.opt_start_seq}
        if source.opt_start_time:
            return {"deliver_policy": "by_start_time", "opt_start_time": source.opt_start_time}
        return {"deliver_policy": "all"}

    def begun(self, delivered: _int, pending: _int) -> None:
        """The consumer is there; it begins after `delivered`."""
        raise NotImplementedError

    def take(self, seq: _int, ts: _int, message: Inbound) -> None:
        """Store a message of the upstream. Raises `ApiError`, `StorageError`."""
        raise NotImplementedError

    def replaced(self) -> None:
        """The upstream is not the stream that it was, but one made anew under its name."""
        raise NotImplementedError

    # -- asking for a consumer -------------------------------------------------------------------

    def begin(self, delay: _int = 0) -> None:
        """Follow the upstream from now on, or `delay` ns later."""
        self._set(FIRST_AFTER_NS + delay, self._ask)

    def stop(self, delete: bool = False) -> None:
        """Take nothing more; with `delete` the durable consumer that was made for it goes."""
        self.stopped = True
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delete and self._durable:
            subject = self._api("CONSUMER.DELETE", self.source.name, self._durable)
            self.account.send(subject, b"", b"", b"")

    def _set(self, delay: _int, callback: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.after(delay, callback) if not self.stopped else None

    def _api(self, *tokens: str) -> bytes:
        external = self.source.external
        prefix = external.api if external is not None else API_PREFIX
        return ".".join([prefix, *tokens]).replace("..", ".").encode()

    def _new_subject(self) -> bytes:
        """Where the next consumer is to deliver."""
        external = self.source.external
        prefix = external.deliver if external is not None and external.deliver else "$JS"
        tail = f".{self.letter}.{self.stream.engine.new_id()[-8:]}"
        return (prefix + tail).replace("..", ".").encode()

    def _ask(self) -> None:
        """Ask for a consumer."""
        self._leave()
        self._asked_at = self.clock.now
        engine = self.stream.engine
        self._reply = b"$JSC.R." + engine.new_id()[-8:].encode()
        self.account.add_service(self._reply, self._answers)
        made = self.source.consumer
        if made is not None:
            self._subject = made.deliver_subject.encode()
            subject, body = self._api("CONSUMER.RESET", self.source.name, made.name), b""
            self._set(RESET_ANSWER_NS_MAX, self._again)
        else:
            self._subject = self._new_subject()
            subject, body = self._creation()
            self._set(ANSWER_NS_MAX, self._again)
        reply = self._reply
        heard = self.account.send(subject, reply, self._request_header(), body)
        if not heard and self._reply == reply:
            self._again()

    def _request_header(self) -> bytes:
        level = self.levels[self._level_at]
        return with_fields(b"", [(NATS_REQUIRED_API_LEVEL, level)]) if level else b""

    def _creation(self) -> tuple[bytes, bytes]:
        """Subject and body of a request to create a consumer."""
        stream = self.stream
        domain = stream.js.domain
        key = f"{self.account.name} {stream.name} {domain} {self.index}"
        name = f"JS_{self.kind}_{short_hash(key)}"
        metadata = {"stream": stream.name, "acc": self.account.name}
        if domain:
            metadata["domain"] = domain
        config: dict[str, Any] = {
            "name": name,
            **self.start(),
            "ack_policy": "none",
            "ack_wait": ACK_WAIT_NS,
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "deliver_subject": self._subject.decode(),
            "idle_heartbeat": HEARTBEAT_NS,
            "inactive_threshold": INACTIVE_NS_MAX,
            "direct": True,
            "sourcing": True,
            "metadata": {f"{self.metadata}.{key}": value for key, value in metadata.items()},
        }
        source = self.source
        filters = [t.src or ">" for t in source.subject_transforms]
        if source.filter_subject:
            filters = [source.filter_subject]
        tokens = ["CONSUMER.CREATE", source.name]
        if len(filters) == 1:
            config["filter_subject"] = filters[0]
            tokens += [name, filters[0]]
        elif filters:
            config["filter_subjects"] = filters
        request = {"stream_name": source.name, "config": config, "action": ""}
        return self._api(*tokens), msgspec.json.encode(request)

    def _leave(self) -> None:
        """Listen to the consumer no more; what it has delivered and is not taken goes."""
        if self._reply:
            self.account.remove_service(self._reply, self._answers)
            self._reply = b""
        if self._consumer:
            self.account.remove_service(self._subject, self)
            self._consumer = b""
            self._ack_head = b""
        self._delivered = self._delivered_seq = 0

    def _again(self) -> None:
        """There is no consumer: ask again, later each time."""
        self._leave()
        wait = AGAIN_AFTER_NS << min(self._fails, 10)
        self._fails += 1
        self._set(min(wait, AGAIN_AFTER_NS_MAX), self._ask)

    def _replace(self) -> None:
        """Something is missing: have a new consumer begin after the position."""
        self._leave()
        self._set(max(self._asked_at + AGAIN_AFTER_NS - self.clock.now, 0), self._ask)

    def answered(self, message: Inbound) -> None:
        """The answer to the open request has come."""
        if not self._reply or self.stopped:
            return
        self.account.remove_service(self._reply, self._answers)
        self._reply = b""
        try:
            answer = parse(message.body(), ConsumerAnswer)
        except msgspec.MsgspecError:
            self._again()  # whatever it is, it is no answer of JetStream
            return
        made = self.source.consumer
        self.error = answer.error
        if self.error is None and made is not None and answer.config.ack_policy != "flow_control":
            self.error = ApiError(self.requires_flow_acks).body
        if self.error is not None:
            if self.error.err_code == ErrorCode.CONSUMER_STREAM_IDENTITY_MISMATCH:
                self.replaced()
            elif self.error.err_code == ErrorCode.REQUIRED_API_LEVEL and self._level_at + 1 < len(
                self.levels
            ):
                self._level_at += 1
            self._again()
            return
        identity = find(
            message.data, message.header_start, message.body_start, NATS_STREAM_IDENTITY
        )
        if identity:
            if self.identity and identity != self.identity:
                self.replaced()
            self.identity = identity
        if made is None:
            self._durable = answer.config.durable_name
        self._fails = 0
        self._consumer = answer.name.encode()
        self._ack_head = ack_head(answer.stream_name, answer.name)
        self.heard_at = self.clock.now
        self.lag = answer.num_pending
        try:
            self.begun(answer.delivered.stream_seq, answer.num_pending)
        except (ApiError, StorageError, OSError) as error:
            self._refused(error)
            return
        self.account.add_service(self._subject, self)
        self._set(INACTIVE_NS_MAX, self._check_health)

    def _check_health(self) -> None:
        """A consumer from which nothing was heard for a while has gone."""
        silent_at = self.heard_at + INACTIVE_NS_MAX
        if self.clock.now >= silent_at:
            self._replace()
        else:
            self._set(silent_at - self.clock.now, self._check_health)

    # -- what the consumer delivers --------------------------------------------------------------

    def handle(self, message: Inbound) -> _int:
        reply = message.reply
        if not reply.startswith(self._ack_head) and not self._knows(reply):
            if message.end == message.body_start:
                self._control(message)
            return 1
        ack = self._ack
        end = ack.read_numbers(reply, len(self._ack_head), NUMBERS)
        if end != len(reply) or not self._consumer:
            return 1
        number = ack.consumer_sequence
        seq = ack.stream_sequence
        ts = ack.timestamp_ns
        pending = ack.num_pending
        self.heard_at = self.clock.now
        if number != self._delivered + 1:
            if number > self._delivered:  # some were lost on the way
                self._replace()
            return 1
        if seq > self.position:
            try:
                self.take(seq, ts, message)
            except (ApiError, StorageError, OSError) as error:
                self._refused(error)
                return 1
            self.position = seq
            self._turn.spent += TAKE_STEPS
        self._delivered = number
        self._delivered_seq = seq
        self.lag = pending - 1 if pending > 0 else 0  # what is pending after it
        return 1

    def _knows(self, reply: bytes) -> bool:
        """Whether a reply subject names the consumer after a domain and an account, as those of
        other servers may; then it is known for the next time."""
        if not is_ack_subject(reply):
            return False
        tokens = reply.split(b".")
        if len(tokens) < 11 or tokens[5] != self._consumer:
            return False
        self._ack_head = b".".join(tokens[:6]) + b"."
        return True

    def _refused(self, error: Exception) -> None:
        """A message could not be stored: it is asked for again in a while."""
        failure = (
            error
            if isinstance(error, ApiError)
            else ApiError(ErrorCode.STREAM_STORE_FAILED, err=str(error))
        )
        self.error = failure.body
        self._again()

    def _control(self, message: Inbound) -> None:
        """Flow control, or a heartbeat."""
        data, start, end = message.data, message.header_start, message.body_start
        if data[start : start + 13] != b"NATS/1.0 100 " or not self._consumer:
            return
        self.heard_at = self.clock.now
        if message.reply:
            self._answer_when_durable(message.reply)
            return
        last = read_number(find(data, start, end, NATS_LAST_CONSUMER) or b"")
        if last >= 0 and last != self._delivered:
            self._replace()
            return
        stalled = find(data, start, end, NATS_CONSUMER_STALLED)
        if stalled:
            self._answer_when_durable(stalled)

    def _answer_when_durable(self, reply: bytes) -> None:
        """Answer flow control once what has come so far survives a crash."""
        consumer, delivered, seq = self._consumer, self._delivered, self._delivered_seq

        def durable(error: StorageError | None) -> None:
            if error is not None or self._consumer != consumer:
                return
            block = b""
            if delivered:
                fields = [
                    (NATS_LAST_CONSUMER, b"%d" % delivered),
                    (NATS_LAST_STREAM, b"%d" % seq),
                ]
                block = with_fields(b"", fields)
            self.account.send(reply, b"", block, b"")

        self.stream.when_durable(durable)

    # -- what becomes of a message ---------------------------------------------------------------

    def subject_of(self, subject: bytes) -> bytes:
        """The subject that a message is stored under."""
        if not self._transforms:
            return subject
        places = self._patterns.match(subject)
        transform = self._transforms[min(places)] if places else None
        return transform.map(subject) if transform is not None else subject

    @property
    def has_asked(self) -> bool:
        """Whether a consumer was asked for yet."""
        return self._asked_at > 0

    def info(self) -> "StreamSourceInfo":
        """StreamSourceInfo (docs/protocol/streams.md#info-and-state)."""
        source = self.source
        shown: StreamSourceInfo = {"name": source.name}
        if source.external is not None:
            shown["external"] = source.external.emit()
        shown["lag"] = self.lag
        shown["active"] = self.clock.now - self.heard_at if self.heard_at else -1
        if self.error is not None:
            shown["error"] = self.error
        if source.subject_transforms:
            shown["subject_transforms"] = [one.emit() for one in source.subject_transforms]
        return shown


def without_conditions(block: bytes, *names: bytes) -> bytes:
    """A header block without what only the first stream had to look at, nor the named fields; b""
    when no field is left."""
    removed = (*_HEADER_NAMES_REMOVED, *(name + b":" for name in names))
    if not any(name in block for name in removed):
        return block
    return without_prefixed(block, *removed)
