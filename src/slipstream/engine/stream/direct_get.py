"""Direct get: messages straight from the stream, one or a batch
(docs/protocol/streams.md#direct-get, ADR-31).

What is asked is read and checked here; `direct_answer` sends what was found.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from slipstream.engine.protocol.json_body import read_lenient
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.engine.stream.direct_answer import Answer, answer_head
from slipstream.errors import StorageError
from slipstream.log.base import Log
from slipstream.log.cold import ColdError
from slipstream.log.record import Record
from slipstream.model.times import text_ns

if TYPE_CHECKING:
    from slipstream.engine.session.account import Account
    from slipstream.engine.stream.stream import Stream

MULTI_SUBJECTS_MAX = 1024


Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class DirectRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request's body, read by `read_lenient`. An invalid time raises ValueError."""

    seq: Sequence = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str | None = None
    batch: Count = 0
    max_bytes: Count = 0
    multi_last: list[str] = []
    up_to_seq: Sequence = 0
    up_to_time: str | None = None
    no_hdr: bool = False
    packed: bool = False  # Slipstream's own: many messages of a batch in one answer

    def __post_init__(self) -> None:
        for text in (self.start_time, self.up_to_time):
            if text is not None:
                text_ns(text)

    @property
    def says_which(self) -> bool:
        """Whether any message is asked for at all."""
        by_subject = self.last_by_subj or self.next_by_subj or self.multi_last
        return bool(by_subject or self.seq) or self.start_time is not None


class DirectGroup(Service):
    """Those who answer direct gets of one stream, itself and its mirrors: one, by chance, does."""

    def __init__(self, account: "Account", name: str) -> None:
        self._account = account
        self.subject = f"$JS.API.DIRECT.GET.{name}".encode()
        self.members: list[DirectGet] = []

    def join(self, member: "DirectGet") -> None:
        """One more may answer."""
        self.members.append(member)
        if len(self.members) == 1:
            self._account.add_service(self.subject, self)
            self._account.add_service(self.subject + b".>", self)

    def leave(self, member: "DirectGet") -> None:
        """One answers no more."""
        self.members.remove(member)
        if not self.members:
            self._account.remove_service(self.subject, self)
            self._account.remove_service(self.subject + b".>", self)

    def handle(self, message: Inbound) -> int:
        n = len(self.members)
        chosen = int(self._account.random.random() * n) if n > 1 else 0
        member = self.members[chosen]
        return member.handle(message)


class DirectGet:
    """Answers direct gets from one stream, for itself or for `upstream`, which it mirrors."""

    def __init__(self, stream: "Stream", upstream: str = "") -> None:
        self.stream = stream
        name = upstream or stream.name
        groups = stream.js.direct_groups
        if name not in groups:
            groups[name] = DirectGroup(stream.account, name)
        self._group: DirectGroup = groups[name]
        self._subject = self._group.subject
        self._head = answer_head(stream.name)
        self._group.join(self)

    def stop(self) -> None:
        """Answer no more."""
        self._group.leave(self)

    def handle(self, message: Inbound) -> int:
        """Answer a request."""
        if not message.reply:
            return 1
        by_subject = message.subject[len(self._subject) + 1 :]
        answer = Answer(self.stream, message.reply, message.session, self._head)
        has_headers = message.body_start > message.header_start
        if has_headers and self.stream.js.refused_level(message):
            answer.status(b"412 Required Api Level")
            return 1
        body = message.body()
        if not body:
            if by_subject:  # as of a bucket
                self._attempt(answer, DirectRequest(last_by_subj=_text_of(by_subject)))
            else:
                answer.status(b"408 Empty Request")
            return 1
        try:
            request = read_lenient(body, DirectRequest)
        except msgspec.MsgspecError:
            answer.status(b"408 Malformed Request")
            return 1
        if by_subject:
            alone = DirectRequest(
                no_hdr=request.no_hdr, max_bytes=request.max_bytes, packed=request.packed
            )
            if request != alone:
                answer.status(b"408 Bad Request")
                return 1
            request.last_by_subj = _text_of(by_subject)
        if not request.says_which:
            answer.status(b"408 Empty Request")
            return 1
        answer.plain = request.no_hdr
        if is_contradictory(request):
            answer.status(b"408 Bad Request")
            return 1
        self._attempt(answer, request)
        return 1

    def _attempt(self, answer: Answer, request: DirectRequest) -> None:
        """Answer, once what is asked for was read from the disk if need be."""
        try:
            self._answer(answer, request)
        except ColdError as cold:
            self._attempt_later(cold, answer, request)
        except (OSError, StorageError):
            answer.status(b"500 Storage Failure")

    def _attempt_later(self, cold: ColdError, answer: Answer, request: DirectRequest) -> None:
        self._fetch(cold, answer, lambda: self._attempt(answer, request))

    def _fetch(self, cold: ColdError, answer: Answer, done: Callable[[], None]) -> None:
        """Go on once the disk was asked, unless the stream has ended meanwhile."""

        def go_on() -> None:
            if self.stream.closed:
                answer.status(b"404 Message Not Found")
            else:
                done()

        self.stream.engine.fetch(cold, answer.session, go_on)

    def _answer(self, answer: Answer, request: DirectRequest) -> None:
        """Answer once what is read is durable. One message is looked up now, or a stream that is
        always written to would never have an answer; many are, up to what is durable then."""
        found = False
        if not request.multi_last and not request.batch:
            found = find_message(self.stream.log, request, answer.record)
        if self.stream.is_settled:
            self._respond(answer, request, found)
        else:
            self._respond_later(answer, request, found)

    def _respond_later(self, answer: Answer, request: DirectRequest, found: bool) -> None:
        self.stream.when_settled(lambda error: self._settled(answer, request, found, error))

    def _settled(
        self, answer: Answer, request: DirectRequest, found: bool, error: Exception | None
    ) -> None:
        """What is there is durable, or `error` says why it may not be: answer."""
        try:
            if error is not None:
                raise error
            self._respond(answer, request, found)
        except ColdError as cold:
            self._fetch(cold, answer, lambda: self._settled(answer, request, found, None))
        except (OSError, StorageError):
            answer.status(b"500 Storage Failure")

    def _respond(self, answer: Answer, request: DirectRequest, found: bool) -> None:
        """Answer with what is asked for; one message was `found` in `answer.record` or was not."""
        if request.multi_last:
            self._multi(answer, request)
        elif request.batch:
            self._batch(answer, request)
        elif found and answer.record.seq <= self.stream.readable_seq:
            answer.single()
        else:
            answer.status(b"404 Message Not Found")

    def _batch(self, answer: Answer, request: DirectRequest) -> None:
        """Up to so many messages in order, then the end marker."""
        log = self.stream.log
        answer.end_seq = self.stream.readable_seq
        patterns = (request.next_by_subj.encode(),) if request.next_by_subj else ()
        start = _start(log, request)
        matching = log.filter(patterns)
        found = log.next_near(max(start, 1), matching, answer.record)
        if not found or answer.record.seq > answer.end_seq:
            answer.status(b"404 Message Not Found")
            return
        first = answer.record.seq
        pending = log.count(patterns, first)
        if log.last_seq > answer.end_seq:
            pending -= log.count_between(matching, answer.end_seq + 1, log.last_seq)
        answer.limit(request.batch, request.max_bytes, pending)
        if request.packed and not request.no_hdr:
            answer.pack()
        answer.from_sequence(first, matching)

    def _multi(self, answer: Answer, request: DirectRequest) -> None:
        """The last message of each subject."""
        log = self.stream.log
        answer.plain = False
        up_to = request.up_to_seq or log.last_seq
        if request.up_to_time is not None:
            up_to = log.seq_at(text_ns(request.up_to_time) + 1) - 1
        up_to = min(up_to, self.stream.readable_seq)
        patterns = tuple(subject.encode() for subject in request.multi_last)
        found = log.last_per_subject(patterns, up_to) if up_to else []
        if len(found) > MULTI_SUBJECTS_MAX:
            answer.status(b"413 Too Many Results")
            return
        if not found:
            answer.status(b"404 No Results")
            return
        found = [seq for seq in found if seq >= request.seq]
        answer.limit(request.batch or len(found), request.max_bytes, len(found))
        answer.of_sequences(found, up_to)


def _text_of(subject: bytes) -> str:
    return subject.decode("utf-8", "surrogateescape")


def is_contradictory(request: DirectRequest) -> bool:
    """Whether it asks for two things at once."""
    by_time = request.start_time is not None
    if request.seq and by_time:
        return True
    if request.multi_last:
        both = request.up_to_seq and request.up_to_time is not None
        return bool(request.last_by_subj or request.next_by_subj or both)
    elsewhere = request.seq or request.next_by_subj or by_time or request.batch
    return bool(request.last_by_subj and elsewhere)


def _start(log: Log, request: DirectRequest) -> int:
    """The sequence from which on to look."""
    if request.start_time is None:
        return request.seq
    return log.seq_at(text_ns(request.start_time))


def find_message(log: Log, request: DirectRequest, record: Record) -> bool:
    """Fill `record` with the one message that a request for one asks for. Raises `ColdError`,
    OSError, `StorageError`."""
    if request.last_by_subj:
        seq = log.last_of(request.last_by_subj.encode("utf-8", "surrogateescape"))
        return bool(seq) and log.read_near(seq, record)
    start = _start(log, request)
    if request.next_by_subj:
        return log.next_near(max(start, 1), log.filter((request.next_by_subj.encode(),)), record)
    if request.start_time is not None:
        return log.next_near(start, None, record)
    return log.read_near(request.seq, record)
