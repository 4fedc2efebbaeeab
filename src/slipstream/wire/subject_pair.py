"""A subject in two accounts: what an import calls it, and what the exporting account does.

An import may rename what it takes: `orders.*.*` becomes `shop.$2.$1`. Every wildcard has to be
used, so that a name can be found from either side.
"""

import re

from slipstream.wire.subjects import has_wildcard, is_pattern
from slipstream.wire.transforms import Transform, TransformError

_REFERENCE = re.compile(r"^(?:\$([0-9]+)|\{\{\s*(\w+)\s*\((.*)\)\s*\}\})$")


class SubjectPair:
    """`theirs` is the subject in the exporting account, `ours` in the importing one; both may have
    wildcards, `ours` also references to those of `theirs` (`$1`, `{{wildcard(1)}}`).

    Raises `TransformError` where one cannot be found from the other.
    """

    def __init__(self, theirs: str, ours: str) -> None:
        self.theirs, _ = _plain(theirs)
        self.ours, references = _plain(ours)
        for pattern in (self.theirs, self.ours):
            if not is_pattern(pattern):
                raise TransformError(f'subject "{pattern.decode()}" is not a valid subject')
        self._their_tokens = self.theirs.split(b".")
        self._our_tokens = self.ours.split(b".")
        self._is_literal = not has_wildcard(self.theirs)
        # For each `*` of `theirs`, in which token of `ours` its text stands, and the other way.
        stars = [i for i, token in enumerate(self._their_tokens) if token == b"*"]
        places = [i for i, token in enumerate(self._our_tokens) if token == b"*"]
        if not self._is_literal:
            self._check(ours, references, len(stars))
        numbers = references or list(range(1, len(places) + 1))
        self._moved = [
            (stars[number - 1], place)
            for number, place in zip(numbers, places, strict=False)
            if number <= len(stars)
        ]
        # Where they differ in their literal beginnings alone, these are exchanged.
        self._their_head, self._our_head, self._has_heads = self._heads()

    def _check(self, ours: str, references: list[int], stars: int) -> None:
        for token in ours.split("."):
            found = _REFERENCE.match(token)
            if found is not None and found[2] and found[2].lower() != "wildcard":
                raise TransformError(
                    "invalid mapping destination: the only mapping function allowed for import "
                    f"transforms is {{{{Wildcard()}}}} in {token}"
                )
        numbered = ours if references else _numbered(ours)
        Transform(self.theirs.decode(), numbered)
        used = references or range(1, self._our_tokens.count(b"*") + 1)
        if len(set(used)) < stars:
            raise TransformError(
                f"invalid mapping destination: not using all of the token wildcard(s) in {ours}"
            )

    def _heads(self) -> tuple[bytes, bytes, bool]:
        """The literal beginnings, and whether the two differ in these alone."""
        if self.theirs == self.ours:
            return b"", b"", True
        heads = []
        tails = []
        for tokens in (self._their_tokens, self._our_tokens):
            wild = [i for i, token in enumerate(tokens) if token in (b"*", b">")]
            first = wild[0] if wild else len(tokens)
            heads.append(b"".join(token + b"." for token in tokens[:first]))
            tails.append(tokens[first:])
        shift = len(self._our_tokens) - len(self._their_tokens)
        in_order = all(place - star == shift for star, place in self._moved)
        return heads[0], heads[1], bool(tails[0]) and tails[0] == tails[1] and in_order

    def to_ours(self, subject: bytes) -> bytes:
        """What the importing account calls `subject`, which `theirs` matches."""
        if self._has_heads:
            return self._our_head + subject[len(self._their_head) :]
        if self._is_literal:
            return self.ours
        return self._moved_tokens(subject, self._their_tokens, self._our_tokens, backward=False)

    def to_theirs(self, subject: bytes) -> bytes:
        """What the exporting account calls `subject`, which `ours` matches."""
        if self._has_heads:
            return self._their_head + subject[len(self._our_head) :]
        if self._is_literal:
            return self.theirs
        return self._moved_tokens(subject, self._our_tokens, self._their_tokens, backward=True)

    def _moved_tokens(
        self, subject: bytes, source: list[bytes], target: list[bytes], *, backward: bool
    ) -> bytes:
        tokens = subject.split(b".")
        made = target[:-1] if target[-1] == b">" else list(target)
        for star, place in self._moved:
            if backward:
                made[star] = tokens[place]
            else:
                made[place] = tokens[star]
        if target[-1] == b">":
            made.extend(tokens[len(source) - 1 :])
        return b".".join(made)

    def interest(self, pattern: bytes) -> bytes:
        """What of `theirs` a subscription to `pattern` in the importing account takes; b"" if
        nothing."""
        both = _intersection(pattern.split(b"."), self._our_tokens)
        return self.to_theirs(b".".join(both)) if both else b""


def _intersection(ours: list[bytes], theirs: list[bytes]) -> list[bytes]:
    """The pattern that matches what both match; empty if there is no such subject."""
    both = []
    for i in range(max(len(ours), len(theirs))):
        a = ours[min(i, len(ours) - 1)]
        b = theirs[min(i, len(theirs) - 1)]
        if (i >= len(ours) and a != b">") or (i >= len(theirs) and b != b">"):
            return []
        if a == b:
            both.append(a)
        elif a == b">":
            both.append(b)
        elif b == b">" or b == b"*":
            both.append(a)
        elif a == b"*":
            both.append(b)
        else:
            return []
    return both


def _plain(subject: str) -> tuple[bytes, list[int]]:
    """The subject with `*` for each reference, and the wildcards that those name."""
    tokens = subject.split(".")
    references = []
    for i, token in enumerate(tokens):
        found = _REFERENCE.match(token)
        number = found and (found[1] or (found[2].lower() == "wildcard" and found[3].strip()))
        if found is not None:
            tokens[i] = "*"
            references.append(int(number) if number and number.isdigit() else 0)
    return ".".join(tokens).encode(), references


def _numbered(subject: str) -> str:
    """The subject with `$1`, `$2` and so on for its wildcards."""
    tokens = subject.split(".")
    count = 0
    for i, token in enumerate(tokens):
        if token == "*":
            count += 1
            tokens[i] = f"${count}"
    return ".".join(tokens)
