"""What a group has promised, written down apart from its code, and compared with what it does."""

from slipstream.group import Entry, Mark, Member
from slipstream.testing.ledger import ViolationError


class GroupHistory:
    """Numbered entries that clients have had answered; the one history that all servers have."""

    def __init__(self) -> None:
        self.answered: dict[int, Mark] = {}  # by number
        self.reads = 0
        self._history: list[Entry] = []  # what any server took for committed, by index - 1
        self._leaders: dict[int, str] = {}  # who has answered, by epoch
        self._latest = 0  # index of the last answered entry

    @property
    def latest(self) -> int:
        """The index of the last entry that was answered: a later one has to be after it."""
        return self._latest

    def committed(self, server: str, first: int, entries: tuple[Entry, ...]) -> None:
        """A server takes `entries`, from index `first` on, for committed."""
        for index, entry in enumerate(entries, first):
            if index > len(self._history):
                self._history.append(entry)
            known = self._history[index - 1]
            if (entry.mark, entry.body) != (known.mark, known.body):
                raise ViolationError(f"history: {server} has {entry} where {known} was committed")

    def trimmed(self, server: str, base: Mark) -> None:
        """The log of a server begins behind `base`."""
        if not base.index:
            return
        known = self._history[base.index - 1].mark if base.index <= len(self._history) else None
        if base != known:
            raise ViolationError(f"history: {server} has trimmed up to {base}, not {known}")

    def answered_append(self, server: str, epoch: int, number: int, mark: Mark, after: int) -> None:
        """A leader says that an entry is committed, which was sent when that of index `after` had
        been answered."""
        self._leads(server, epoch)
        if mark.index <= after:
            raise ViolationError(f"order: {number} is {mark.index}, sent after {after}")
        if self._number_at(mark) != number:
            raise ViolationError(f"durable: {server} has answered {number}, and has not {mark}")
        self.answered[number] = mark
        self._latest = max(self._latest, mark.index)

    def answers(self, server: str, epoch: int, index: int) -> None:
        """A leader answers something that entries up to `index` may have brought about."""
        self._leads(server, epoch)
        self._latest = max(self._latest, index)

    def _number_at(self, mark: Mark) -> int:
        known = self._history[mark.index - 1 : mark.index]
        return int(known[0].body) if known and known[0].mark == mark and known[0].body else 0

    def may_read(self, server: str, epoch: int, index: int) -> None:
        """A leader would answer a read now with what is committed up to `index`."""
        self._leads(server, epoch)
        self.reads += 1
        if index < self._latest:
            raise ViolationError(f"read: {server} knows {index}, {self._latest} was answered")

    def _leads(self, server: str, epoch: int) -> None:
        leader = self._leaders.setdefault(epoch, server)
        if leader != server:
            raise ViolationError(f"leader: {leader} and {server} have answered in {epoch}")

    def serves(self, server: str, member: Member) -> None:
        """A server begins to serve: its log has to have all that was answered, but for what it has
        applied and trimmed."""
        for number, mark in self.answered.items():
            if mark.index > member.log.base.index and member.log.mark(mark.index) != mark:
                found = member.log.mark(mark.index)
                raise ViolationError(f"durable: {server} leads without {number}, {mark}: {found}")

    def check(self) -> None:
        """Every answered entry is in the history once, in the order of the answers' indices."""
        numbers = [int(entry.body) for entry in self._history if entry.body]
        if len(set(numbers)) < len(numbers):
            raise ViolationError(f"once: {numbers} has one twice")
        missing = self.answered.keys() - set(numbers)
        if missing:
            raise ViolationError(f"durable: {sorted(missing)} were answered, and are not there")
