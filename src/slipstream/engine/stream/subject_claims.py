"""Which subjects are taken: no two streams of an account may store the same message, nor may two
consumers of a work queue be given it.

Subjects stand in a trie, so that a new one is compared with those that begin as it does, not with
all. That is all that real subjects need. But patterns can be made up of which each has to be
compared with all others (``*.x1``, ``*.x2`` ... beside ``y1.z``, ``y2.z`` ...), and no way is known
to do better with those. So what one request may have compared is bounded.
"""

from sys import intern

from slipstream.wire.patterns import PatternTrie

COMPARED_MAX = 1_000_000  # nodes of a trie that are looked at for one request


class TooManyComparisonsError(Exception):
    """Subjects have so many wildcards that each would have to be compared with all others."""

    def __init__(self) -> None:
        super().__init__(
            "subjects have too many wildcards to be compared in time, "
            "use fewer subjects or begin them with literal tokens"
        )


class Comparisons:
    """What is left of the comparisons that one request may ask for."""

    def __init__(self) -> None:
        self._left = COMPARED_MAX

    def overlap(self, trie: PatternTrie, pattern: bytes, but: object = None) -> object:
        """`PatternTrie.find_overlap`. Raises `TooManyComparisonsError`."""
        before = trie.visited
        found: object = trie.find_overlap(pattern, but)
        self._count(trie.visited - before)
        return found

    def cover(self, trie: PatternTrie, pattern: bytes, but: object = None) -> object:
        """`PatternTrie.find_cover`. Raises `TooManyComparisonsError`."""
        before = trie.visited
        found: object = trie.find_cover(pattern, but)
        self._count(trie.visited - before)
        return found

    def _count(self, visited: int) -> None:
        self._left -= visited
        if self._left < 0:
            raise TooManyComparisonsError


class SubjectClaims:
    """The subjects of an account's streams."""

    def __init__(self) -> None:
        self._trie = PatternTrie()  # names of streams by their subjects

    def __len__(self) -> int:
        return len(self._trie)

    def add(self, owner: str, subjects: list[str]) -> None:
        """Stream `owner` takes these."""
        for subject in subjects:
            self._trie.insert(subject.encode(), intern(owner))

    def remove(self, owner: str, subjects: list[str]) -> None:
        """`owner` takes these subjects no more."""
        for subject in subjects:
            self._trie.remove(subject.encode(), intern(owner))

    def is_taken(self, subject: str, owner: str, comparisons: Comparisons | None = None) -> bool:
        """Whether a stream other than `owner` has a subject that overlaps with `subject`.

        Raises `TooManyComparisonsError`.
        """
        spent = comparisons or Comparisons()
        return spent.overlap(self._trie, subject.encode(), intern(owner)) is not None

    def owners(self, subject: str) -> set[str]:
        """The streams that have a subject which overlaps with `subject`."""
        return set(self._trie.overlapping(subject.encode()))
