"""Every subject of a log with its live state, and filters over them.

A subject gets a small number, its id, when its first message comes, and gives it back with its last
one. Blocks of messages remember ids, so that looking for a subject means comparing numbers.

The compiled build replaces this module by `subject_index.pyx`, which keeps about 60 bytes for a
subject besides its text; this is its plain twin and test oracle.

Filters with wildcards find their subjects through shapes (`subject_shape`). A shape is made when it
is first asked for and looks at all subjects then; from there on it is kept up with them.
"""

import struct

from slipstream.log.subject_shape import Shape, form_of
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard, is_pattern, matches

# With fewer subjects than this a filter looks at each: that is quicker than to make a shape.
FEW_SUBJECTS = 256
MANY_SUBJECTS = 4096
SHAPES_KEPT = 4  # of those asked for last; each costs memory and a little for every new subject


class _Entry:
    __slots__ = ("birth", "count", "first", "last", "text")

    def __init__(self, text: bytes, birth: int) -> None:
        self.text = text
        self.birth = birth  # tells the subjects apart that have had the same id
        self.count = 0
        self.first = 0
        self.last = 0


class SubjectIndex:
    """Subjects by id. `live` counts those that have messages."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, int] = {}
        self._entries: list[_Entry | None] = []
        self._free: list[int] = []
        self._birth = 0
        # By form; the one asked for last comes last.
        self._shapes: dict[tuple[int, int, bool], Shape] = {}
        self.live = 0

    def intern(self, subject: bytes) -> int:
        """The id of `subject`, a new one if it has none. Follow with `added`."""
        id = self._by_text.get(subject)
        if id is not None:
            return id
        self._birth += 1
        entry = _Entry(subject, self._birth)
        if self._free:
            id = self._free.pop()
            self._entries[id] = entry
        else:
            id = len(self._entries)
            self._entries.append(entry)
        self._by_text[subject] = id
        for shape in self._shapes.values():
            shape.add(id, subject)
        return id

    def probes(self, subject: bytes) -> int:
        """How many slots of its table a look-up of `subject` compares: one, as far as this twin
        knows of its dict, whose hashes have a key."""
        return 1

    def find(self, subject: bytes) -> int:
        """The id of `subject`; -1 if no message has it."""
        return self._by_text.get(subject, -1)

    def _entry(self, id: int) -> _Entry:
        entry = self._entries[id]
        if entry is None:
            raise IndexError(id)
        return entry

    def subject(self, id: int) -> bytes:
        """The text of a subject."""
        return self._entry(id).text

    def birth(self, id: int) -> int:
        """A number that no other holder of this id has had."""
        entry = self._entries[id]
        return entry.birth if entry else 0

    def count(self, id: int) -> int:
        """How many live messages have this subject."""
        return self._entry(id).count

    def first(self, id: int) -> int:
        """The lowest live sequence; 0 when it is not known (the log finds it and sets it)."""
        return self._entry(id).first

    def last(self, id: int) -> int:
        """The highest live sequence; 0 when it is not known."""
        return self._entry(id).last

    def set_first(self, id: int, seq: int) -> None:
        """Note the lowest live sequence."""
        self._entry(id).first = seq

    def set_last(self, id: int, seq: int) -> None:
        """Note the highest live sequence."""
        self._entry(id).last = seq

    def added(self, id: int, seq: int) -> None:
        """A message with this subject was stored as `seq`, above all others."""
        entry = self._entry(id)
        if entry.count == 0:
            self.live += 1
            entry.first = seq
        entry.count += 1
        entry.last = seq

    def load_block(self, names: bytes, stats: bytes, base: int) -> None:
        """Take over a whole block: subjects joined by line feeds, and for each its count, first and
        last place (three u32, packed). Raises ValueError if they do not go together."""
        if len(stats) % 12:
            raise ValueError("the numbers of a subject are three of four bytes each")
        numbers = struct.iter_unpack("<III", stats)
        for name, (count, first, last) in zip(names.split(b"\n"), numbers, strict=True):
            id = self.intern(name)
            entry = self._entry(id)
            if entry.count == 0:
                self.live += 1
                entry.first = base + first
            entry.count += count
            entry.last = max(entry.last, base + last)

    def removed(self, id: int, seq: int) -> None:
        """Message `seq` with this subject is gone; with the last one the id is free again."""
        entry = self._entry(id)
        entry.count -= 1
        if entry.count == 0:
            self.live -= 1
            self._forget(id, entry)
            return
        if entry.first == seq:
            entry.first = entry.last if entry.count == 1 and entry.last != seq else 0
        if entry.last == seq:
            entry.last = 0

    def _forget(self, id: int, entry: _Entry) -> None:
        """No message has this subject any more: its id is free again."""
        del self._by_text[entry.text]
        self._entries[id] = None
        self._free.append(id)
        for shape in self._shapes.values():
            shape.remove(id)

    def clear(self) -> None:
        """All messages are gone, and with them every subject."""
        for id, entry in enumerate(self._entries):
            if entry is not None:
                entry.count = 0
                self._forget(id, entry)
        self.live = 0

    def ids(self) -> list[int]:
        """The ids of all live subjects."""
        return [id for id, entry in enumerate(self._entries) if entry is not None and entry.count]

    def matching(self, pattern: bytes) -> list[int]:
        """The ids of all live subjects that match, in any order. O(matching subjects) once a
        pattern of this shape was asked for; `*` and `>` alone look at all subjects."""
        if not has_wildcard(pattern):
            id = self.find(pattern)
            return [id] if id >= 0 and self.count(id) else []
        shape = None if len(self._by_text) < FEW_SUBJECTS else self._shape_for(pattern)
        among = self.ids() if shape is None else shape.candidates(pattern)
        return [id for id in among if matches(pattern, self.subject(id)) and self.count(id)]

    def _shape_for(self, pattern: bytes) -> Shape | None:
        """The shape to ask for `pattern`; None if it has none."""
        form = form_of(pattern)
        if form is None:
            return None
        shape = self._shapes.pop(form, None)
        if shape is None:
            shape = Shape(*form)
            for text, id in self._by_text.items():
                shape.add(id, text)
            if len(self._shapes) == SHAPES_KEPT:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[form] = shape
        return shape


class SubjectFilter:
    """Which subjects match one of some patterns; decided once for each subject."""

    def __init__(self, index: SubjectIndex, patterns: tuple[bytes, ...]) -> None:
        self._index = index
        self.patterns = patterns = tuple(dict.fromkeys(patterns))
        self._trie: PatternTrie | None = None  # of the patterns, where there are several
        if len(patterns) > 1:
            self._trie = PatternTrie()
            for pattern in filter(is_pattern, patterns):  # another text matches nothing
                self._trie.insert(pattern, pattern)
        # With a single literal pattern no decisions are kept: `only` is its id, or -1.
        self.literal = patterns[0] if len(patterns) == 1 and not has_wildcard(patterns[0]) else b""
        self.only = -1
        self._matches_many = False
        self._decided: dict[int, bool] = {}

    def refresh(self) -> None:
        """Look up what may have changed since the last use; call it before scanning."""
        if self.literal:
            self.only = self._index.find(self.literal)

    def at_or_after(self, seq: int) -> int:
        """Where to go on looking from `seq`: none before it matches, or none at all (-1).

        Goes by the first and last message of each matching subject, where they are known. Too many
        are not looked at: where many subjects match, matching messages are not far apart.
        """
        if self._matches_many:
            return seq
        wanted = -1
        ids = self.ids()
        self._matches_many = len(ids) > MANY_SUBJECTS
        for id in ids:
            first, last = self._index.first(id), self._index.last(id)
            if last == 0 or last >= seq:
                if first <= seq:
                    return seq
                wanted = first if wanted < 0 else min(wanted, first)
        return wanted

    def accepts(self, id: int) -> bool:
        """Whether the subject with this id matches."""
        if self.literal:
            return id == self.only
        birth = self._index.birth(id)
        verdict = self._decided.get(birth)
        if verdict is None:
            text = self._index.subject(id)
            if self._trie is None:
                verdict = matches(self.patterns[0], text)
            else:
                verdict = bool(self._trie.match(text))
            self._decided[birth] = verdict
        return verdict

    def ids(self) -> list[int]:
        """The ids of all live subjects that match, in any order (see `SubjectIndex.matching`).

        Patterns of more shapes than are kept would have each made anew for the next one: then all
        subjects are looked at, once.
        """
        if self._trie is None:
            return self._index.matching(self.patterns[0])
        wild = [pattern for pattern in self.patterns if has_wildcard(pattern)]
        forms = {form_of(pattern) for pattern in wild}
        few = self._index.live < FEW_SUBJECTS
        if wild and (few or None in forms or len(forms) > SHAPES_KEPT):
            return [id for id in self._index.ids() if self._trie.match(self._index.subject(id))]
        found: set[int] = set()
        for pattern in self.patterns:
            found.update(self._index.matching(pattern))
        return list(found)

    def total(self) -> int:
        """How many live messages match."""
        return sum(self._index.count(id) for id in self.ids())
