"""What a client was told, event by event, as its program prints it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A message that a stream has, as the client was told. `tries` is how often it was sent, and
    `is_double` what the server says: it was stored by an earlier one."""

    number: int
    sequence: int
    tries: int
    is_double: bool
    at: float  # s


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that the consumer was given; `count` is how often, as the server says. The client
    had none any more when it `asked`, so it was sent after that."""

    number: int
    sequence: int
    count: int
    asked: float  # s
    at: float  # s


@dataclass(slots=True)
class Record:
    """All of it, each kind in the order of time."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    settled: dict[int, float] = field(default_factory=dict)  # first time, by number
    refused: list[tuple[float, str]] = field(default_factory=list)  # publishes, and why
    unsettled: list[tuple[float, str]] = field(default_factory=list)  # double acks, and why
    breaks: list[float] = field(default_factory=list)  # when a connection ended or was made again
    notes: list[tuple[float, str]] = field(default_factory=list)  # errors
    _asked: float = 0.0
    published: int | None = None  # how many messages, once it has stopped

    def take(self, line: str) -> None:
        """A line of the program. Raises ValueError for what is none."""
        event, time, *words = line.split(" ", 3)
        at = int(time) / 1e6
        if event == "acknowledged":
            sequence, tries, is_double = map(int, words[1].split())
            told = Acknowledged(int(words[0]), sequence, tries, bool(is_double), at)
            self.acknowledged.append(told)
        elif event == "asked":
            self._asked = at
        elif event == "delivered":
            sequence, count = map(int, words[1].split())
            self.delivered.append(Delivered(int(words[0]), sequence, count, self._asked, at))
        elif event == "settled":
            self.settled.setdefault(int(words[0]), at)
        elif event == "refused":
            self.refused.append((at, " ".join(words)))
        elif event == "unsettled":
            self.unsettled.append((at, " ".join(words)))
        elif event == "stopped":
            self.published = int(words[0])
        elif event in ("disconnected", "reconnected"):
            self.breaks.append(at)
        elif event == "note":
            self.notes.append((at, " ".join(words)))
        else:
            raise ValueError(f"no event of a client: {line!r}")
