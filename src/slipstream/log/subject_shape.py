"""Subjects linked by the tokens that patterns of one shape name.

A pattern's shape is where it names a token and how long its subjects are: `*.*.x.>` names the third
and takes four tokens or more. The subjects that such a pattern can match all have the same token
there, so a table by these tokens leads from a pattern to its subjects and to no others.

The compiled build replaces this module by `subject_shape.pyx`, which keeps hashes instead of tokens
and about 20 bytes for a subject; this is its plain twin and test oracle.
"""

LONGEST = 32  # tokens, one bit for each


class Shape:
    """The ids of the subjects that patterns of one shape can match, by the tokens in its places."""

    def __init__(self, places: int, tokens: int, open_end: bool) -> None:
        self._places = places  # bit i: the pattern names token i
        self._tokens = tokens  # how many a subject has; with an open end, at least
        self._open_end = open_end
        self._ids: dict[tuple[bytes, ...], dict[int, None]] = {}
        self._keys: dict[int, tuple[bytes, ...]] = {}

    def _key(self, text: bytes) -> tuple[bytes, ...]:
        tokens = text.split(b".")[:LONGEST]
        return tuple(token for i, token in enumerate(tokens) if self._places >> i & 1)

    def add(self, id: int, subject: bytes) -> None:
        """Take in a subject, unless no pattern of this shape can match it."""
        size = subject.count(b".") + 1
        if size == self._tokens or (self._open_end and size > self._tokens):
            key = self._keys[id] = self._key(subject)
            self._ids.setdefault(key, {})[id] = None

    def remove(self, id: int) -> None:
        """Let a subject go; nothing if it was not taken in."""
        key = self._keys.pop(id, None)
        if key is not None:
            del self._ids[key][id]
            if not self._ids[key]:
                del self._ids[key]

    def candidates(self, pattern: bytes) -> list[int]:
        """All ids that `pattern`, which has this shape, can match, in any order.

        Others may be among them where hashes are kept: look at the subjects.
        """
        return list(self._ids.get(self._key(pattern), ()))


def form_of(pattern: bytes) -> tuple[int, int, bool] | None:
    """What to make the shape of this pattern with; None if it names no token, or is too long."""
    tokens = pattern.split(b".")
    if len(tokens) > LONGEST:
        return None
    places = sum(1 << i for i, token in enumerate(tokens) if token not in (b"*", b">"))
    return (places, len(tokens), tokens[-1] == b">") if places else None
