"""What clients of a group's engines were told, written down and judged apart from the engines.

Each call has a beginning and an end, counted in moments of the whole simulation. A call whose end
never came may have taken effect at any time since, or never.

* What is kept by key is linearizable: the last value of a subject with the sequences that writes
  expect, the total of a counter, whether a stream or a consumer is there (`linearizability`).
* What a stream has stored is there for good, once, and in the order of calls that followed each
  other, unless it was deleted.
* What a double acknowledgement has settled is never delivered to whoever asks after that.
* Where the stream ends by its information, it has ended since: what is published later comes
  after that. Nothing is delivered later that a consumer's information says is settled.
"""

from collections import defaultdict
from collections.abc import Callable

from slipstream.testing.ledger import ViolationError
from slipstream.testing.linearizability import Call, is_linearizable

NOBODY = 0  # the state of a key without a value


class EngineHistory:
    """See the module's text."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.moment = 0
        self.answered = 0  # calls
        self._bodies: dict[int, bytes] = {}  # by sequence, as anybody was told
        self._settled: dict[int, int] = {}  # by sequence, since which moment
        self._floors: list[tuple[int, int]] = []  # (moment, up to which all was settled)

    def tick(self) -> int:
        """The next moment."""
        self.moment += 1
        return self.moment

    def begin(self, kind: str, key: str, argument: object = None) -> Call:
        """A client calls."""
        call = Call(kind, self.tick(), argument, key=key)
        self.calls.append(call)
        return call

    def end(self, call: Call, answer: object, is_refused: bool = False) -> None:
        """It is answered."""
        call.end, call.answer, call.is_refused = self.tick(), answer, is_refused
        self.answered += 1
        if is_refused:
            return
        if call.kind == "publish":
            self._told(call.answer, call.argument)
        elif call.kind == "settle":
            self._settled.setdefault(call.argument, call.end)
        elif call.kind == "floor":
            self._floors.append((call.end, call.answer))

    def _told(self, seq: int, body: bytes) -> None:
        known = self._bodies.setdefault(seq, body)
        if known != body:
            raise ViolationError(f"history: {seq} is {body!r}, and was {known!r}")

    def delivered(self, call: Call, seq: int, body: bytes) -> None:
        """A message has come for a fetch."""
        self._told(seq, body)
        since = self._settled.get(seq)
        if since is not None and since < call.start:
            raise ViolationError(f"position: {seq} was settled, and is delivered again")
        if any(since < call.start and seq <= floor for since, floor in self._floors):
            raise ViolationError(f"position: {seq} was shown as settled, and is delivered")
        for one in self.calls:
            is_gone = one.kind == "remove" and one.argument == seq and not one.is_refused
            if is_gone and one.end < call.start:
                raise ViolationError(f"removed: {seq} was deleted, and is delivered")

    # -- the end ---------------------------------------------------------------------------------

    def found(self, content: dict[int, tuple[str, bytes]]) -> None:
        """All that the stream has now, while nobody calls."""
        for seq, (_, body) in content.items():
            self._told(seq, body)
        self._check_stored(content)

    def check(self) -> None:
        """Compare all that was told. Raises `ViolationError`."""
        self._check_order()
        self._check_ends()
        models = {"value": self._value_model(), "total": _total, "name": _name}
        keys: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            if call.key and (call.is_known or call.kind not in ("get", "total", "look")):
                keys[call.key].append(call)
        for key, calls in sorted(keys.items()):
            model = models[key.partition(":")[0]]
            if not is_linearizable(calls, model, NOBODY):
                shown = "\n      ".join(map(_describe, calls))
                raise ViolationError(f"linearizable: {key} is not one thing:\n      {shown}")

    def _check_stored(self, content: dict[int, tuple[str, bytes]]) -> None:
        removed = {call.argument for call in self.calls if call.kind == "remove"}
        gone = {
            call.argument
            for call in self.calls
            if call.kind == "remove" and call.is_known and not call.is_refused
        }
        if gone & content.keys():
            raise ViolationError(f"removed: {sorted(gone & content.keys())} are back")
        bodies = [body for _, body in content.values()]
        twice = {body for body in bodies if bodies.count(body) > 1}
        if twice:
            raise ViolationError(f"once: {sorted(twice)} are stored twice")
        missing = self._bodies.keys() - content.keys() - removed
        if missing:
            raise ViolationError(f"durable: {sorted(missing)} were told of, and are not there")
        sent = {call.argument for call in self.calls if call.kind == "publish"}
        unknown = set(bodies) - sent
        if unknown:
            raise ViolationError(f"forged: {sorted(unknown)} were never published")

    def _check_order(self) -> None:
        stored = [
            call
            for call in self.calls
            if call.kind == "publish" and call.is_known and not call.is_refused
        ]
        first: dict[bytes, int] = {}  # when a message was sent for the first time
        for call in self.calls:
            if call.kind == "publish":
                first.setdefault(call.argument, call.start)
        by_end = sorted(stored, key=lambda call: call.end)
        by_start = sorted(stored, key=lambda call: first[call.argument])
        at = last = 0
        for call in by_start:
            while at < len(by_end) and by_end[at].end < first[call.argument]:
                last = max(last, by_end[at].answer)
                at += 1
            if call.answer <= last:
                raise ViolationError(f"order: {call} is not behind {last}, answered before it")

    def _check_ends(self) -> None:
        """What was stored before a look at the stream's end is not behind that, and what was sent
        after it is."""
        looks = [call for call in self.calls if call.kind == "end" and call.is_known]
        first: dict[bytes, int] = {}
        for call in self.calls:
            if call.kind == "publish":
                first.setdefault(call.argument, call.start)
        for call in self.calls:
            if call.kind != "publish" or not call.is_known or call.is_refused:
                continue
            for look in looks:
                if call.end < look.start and call.answer > look.answer:
                    raise ViolationError(f"info: {call.answer} was stored, the end {look.answer}")
                if look.end < first[call.argument] and call.answer <= look.answer:
                    raise ViolationError(f"info: {call.answer} comes after the end {look.answer}")

    def _value_model(self) -> Callable[[int, Call], int | None]:
        """The last value of a subject: a state is the number of the write that made it."""
        sequences: dict[int, int] = {}  # of writes, by number, as anybody was told
        for call in self.calls:
            if call.is_known and not call.is_refused and call.answer is not None:
                if call.kind == "put":
                    sequences[call.argument[0]] = call.answer
                elif call.kind == "get" and call.answer != (0, NOBODY):
                    seq, number = call.answer
                    if sequences.setdefault(number, seq) != seq:
                        raise ViolationError(f"history: {number} was at {sequences[number]}, {seq}")
        known = set(sequences.values())

        def is_at(state: int, seq: int) -> bool:
            if state == NOBODY:
                return seq == 0
            return sequences[state] == seq if state in sequences else seq not in known and seq > 0

        def value(state: int, call: Call) -> int | None:
            if call.kind == "get":
                seq, number = call.answer
                return state if number == state and is_at(state, seq) else None
            if call.kind == "purge":
                return NOBODY
            if call.kind == "delete":
                if call.is_refused:
                    return None if is_at(state, call.argument) else state
                if is_at(state, call.argument):
                    return NOBODY
                return None if call.is_known else state
            number, expected = call.argument
            if call.is_refused:
                return state if is_at(state, call.answer) and call.answer != expected else None
            if expected is not None and not is_at(state, expected):
                return None if call.is_known else state
            if state in sequences and sequences.get(number, 1 << 62) <= sequences[state]:
                return None
            return number  # type: ignore[no-any-return]

        return value


def _total(state: int, call: Call) -> int | None:
    """A counter."""
    if call.kind == "total":
        return state if call.answer == state else None
    after: int = state + call.argument
    return after if not call.is_known or call.answer == after else None


def _name(state: int, call: Call) -> int | None:
    """Whether a stream or a consumer is there: 1, or 0."""
    if call.kind == "look":
        return state if call.answer == state else None
    if call.kind == "create":
        return 1
    if call.is_refused:  # it was not found
        return state if not state else None
    return 0 if state or not call.is_known else None


def _describe(call: Call) -> str:
    end = call.end if call.is_known else "?"
    text = f"{call.start}-{end} {call.kind} {call.argument}"
    return f"{text} -> {'refused, ' if call.is_refused else ''}{call.answer}"
