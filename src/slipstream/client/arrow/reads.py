"""How a scan reads: by batched direct gets, or through an ordered consumer.

A `Reader` asks for one batch at a time into fresh columns, at an inbox of the request's own, so
that an answer that comes late cannot be taken for one of the next request.
"""

from typing import TYPE_CHECKING

import msgspec

from slipstream.client.arrow.columns import MessageColumns
from slipstream.client.arrow.gather import FULL, Gather
from slipstream.client.jetstream.api import delete_in_background, new_name
from slipstream.client.jetstream.errors import ApiError, BadPullRequestError, MaxBytesExceededError
from slipstream.client.jetstream.model import ConsumerConfig, Timestamp
from slipstream.client.jetstream.status import StatusMeaning, header_number, meaning_of
from slipstream.client.jetstream.stored import message_after
from slipstream.client.message import Message

if TYPE_CHECKING:
    from slipstream.client.jetstream import JetStream
    from slipstream.client.subscriptions import SinkSubscription

PULL_EXPIRES_SECONDS = 30
PULL_HEARTBEAT_SECONDS = 1
INACTIVE_SECONDS = 60.0
_NANO = 1_000_000_000


class Range(msgspec.Struct):
    """What is still to be read: sequences `next` to `last`, times before `time_end`.

    Until the first message has come the start may be a time (RFC 3339) instead.
    """

    last: int
    next: int = 1
    start_time: str = ""
    time_end: int = 2**63 - 1


class Reader:
    """Asks for batches of a range; what is common to both ways."""

    is_direct = False

    def __init__(self, js: "JetStream", stream: str, subjects: list[str], wanted: Range) -> None:
        self._js = js
        self._stream = stream
        self._subjects = subjects
        self._range = wanted
        self._rows = 0
        self._bytes = 0
        self._subscription: SinkSubscription | None = None
        self.gathered: Gather | None = None

    def limit(self, rows: int, size: int) -> None:
        """Bound batches to so many rows and bytes."""
        self._rows = rows
        self._bytes = size

    @property
    def is_behind_end(self) -> bool:
        """Whether the last wanted message has come."""
        return self._range.next > self._range.last

    def advance(self, columns: MessageColumns) -> None:
        """Rows have come: go on behind them."""
        if columns.rows:
            self._range.next = columns.sequence + 1
            self._range.start_time = ""

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch into `columns`."""
        raise NotImplementedError

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """What a status means: True, nothing is left; False, go on; None, something was lost.

        Raises `ApiError` for what asking again cannot help.
        """
        raise NotImplementedError

    def has_nothing_left(self, columns: MessageColumns) -> bool:
        """Whether the server said with the last row that nothing matches behind it."""
        return columns.pending == 0

    async def is_exhausted(self) -> bool:
        """Nothing is left, it is said: whether that is so."""
        return True

    def restart(self) -> None:
        """Something was lost."""

    def stop(self) -> None:
        """Take no more answers of the request under way."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def close(self) -> None:
        """Read no more."""
        self.stop()

    async def _room(self) -> None:
        """Wait until a request can be sent. What came before it is kept: the wait may be
        cancelled."""
        if self._js.connection.write_buffer.crowded:
            await self._js.connection.write_buffer.room()

    def _send(self, subject: str, body: dict[str, object], inbox: str) -> None:
        """Send a request."""
        self._js.connection.publish_nowait(subject, msgspec.json.encode(body), reply=inbox)

    def _open(self, columns: MessageColumns, expected: int) -> str:
        """Let answers go to `columns`; the subject where they are to be sent."""
        columns.last_wanted = self._range.last
        columns.time_end = self._range.time_end
        columns.expected = expected
        columns.ordered = not self.is_direct
        self.gathered = Gather(columns, self._rows, self._bytes, self.is_direct)
        inbox = self._js.connection.new_inbox()
        self._subscription = self._js.connection.open_sink(inbox, self.gathered)
        return inbox


class DirectReader(Reader):
    """Reads by batched direct gets (streams.md section 7.2)."""

    is_direct = True

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch."""
        wanted = self._range
        rows = min(self._rows, wanted.last - wanted.next + 1)
        asked: dict[str, object] = {"batch": rows, "max_bytes": self._bytes}
        if wanted.start_time:
            asked["start_time"] = wanted.start_time
        else:
            asked["seq"] = wanted.next
        if self._subjects:
            asked["next_by_subj"] = self._subjects[0]
        await self._room()
        inbox = self._open(columns, expected=0)
        self._send(f"{self._js.api.prefix}.DIRECT.GET.{self._stream}", asked, inbox)

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """204 ends a batch, 404 says that nothing is left."""
        code = status.status
        if code == 404:
            return True
        if code == 204:
            if header_number(status, "Nats-Last-Sequence") != columns.expected:
                return None  # the last messages of the batch did not come
            if status.header("Nats-Num-Pending") == "0":
                return True
            return False if columns.rows else None  # nothing came though something is left
        if code == 503:
            return None  # between two leaders, or the stream is gone: the next try tells
        asked = f"scan of stream {self._stream!r}"
        raise ApiError(code, 0, status.description, asked)

    async def is_exhausted(self) -> bool:
        """A replica or mirror may lag behind: ask the leader whether something is left."""
        wanted = self._range
        if wanted.start_time or self.is_behind_end:
            return True
        subject = self._subjects[0] if self._subjects else ">"
        found = await message_after(self._js, self._stream, subject, wanted.next - 1)
        return found is None or found.sequence > wanted.last


class ConsumerReader(Reader):
    """Reads by pulling from an ephemeral consumer without acknowledgements (consumers.md 8)."""

    def __init__(self, js: "JetStream", stream: str, subjects: list[str], wanted: Range) -> None:
        super().__init__(js, stream, subjects, wanted)
        self._consumer = ""
        self._is_made = False  # the server has said so
        self._delivered = 0  # consumer sequence of the last message
        self._is_empty = False  # the consumer was made, and nothing matches

    async def request(self, columns: MessageColumns) -> None:
        """Ask for a batch, of a new consumer if there is none."""
        if not self._consumer:
            await self._make_consumer()
        body: dict[str, object] = {
            "batch": self._rows,
            "max_bytes": self._bytes,
            "expires": PULL_EXPIRES_SECONDS * _NANO,
            "idle_heartbeat": PULL_HEARTBEAT_SECONDS * _NANO,
        }
        await self._room()
        inbox = self._open(columns, expected=self._delivered)
        if self._is_empty and self.gathered is not None:
            self.gathered.end(FULL)
            return
        subject = f"{self._js.api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._send(subject, body, inbox)

    async def _make_consumer(self) -> None:
        wanted = self._range
        config = ConsumerConfig(
            name=new_name(),
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=INACTIVE_SECONDS,
        )
        if wanted.start_time:
            config.deliver_policy = "by_start_time"
            config.opt_start_time = Timestamp.parse(wanted.start_time)
        else:
            config.deliver_policy = "by_start_sequence"
            config.opt_start_seq = wanted.next
        if len(self._subjects) == 1:
            config.filter_subject = self._subjects[0]
        else:
            config.filter_subjects = list(self._subjects)
        self._consumer = config.name
        self._is_made = False
        try:
            made = await self._js.create_consumer_raw(self._stream, config)
        except ApiError:
            self._consumer = ""
            raise
        except Exception:
            self.restart()
            raise
        self._is_made = True
        self._delivered = 0
        self._is_empty = made.num_pending == 0

    def advance(self, columns: MessageColumns) -> None:
        """Rows have come: the next one has the next number."""
        super().advance(columns)
        self._delivered = columns.expected

    def has_nothing_left(self, columns: MessageColumns) -> bool:
        """Whether the consumer had no message behind the last row."""
        return self._is_empty or super().has_nothing_left(columns)

    def meaning_of(self, status: Message, columns: MessageColumns) -> bool | None:
        """A request that ended early is followed by another; all else costs the consumer."""
        meaning, error = meaning_of(status, f"scan of stream {self._stream!r}")
        if meaning is StatusMeaning.DONE:
            return False if columns.rows else None
        if isinstance(error, MaxBytesExceededError):
            if not columns.rows:
                self._bytes *= 2  # a message alone is larger than that
            return False
        if isinstance(error, BadPullRequestError):
            raise error
        return None

    def restart(self) -> None:
        """Have another consumer made, which starts behind the last row."""
        if self._consumer:
            delete_in_background(
                self._js, self._stream, self._consumer, is_being_made=not self._is_made
            )
        self._consumer = ""

    def close(self) -> None:
        """Read no more; the server forgets the consumer."""
        super().close()
        self.restart()
