"""What was found for a subject, kept for all subjects of which it is true.

A cache by subject alone is of no use where each subject is new: inboxes, acknowledgements, keys.
A match in a `PatternTrie` says which other subjects would have given the same result, so that one
entry can stand for all of them. A subject is looked up

1. as it is;
2. by all but its last token: ``_INBOX.abc.`` for ``_INBOX.abc.17``, where the last token made no
   difference;
3. by its first or first two tokens: ``orders.`` for ``orders.de.berlin.7``, where nobody
   distinguishes more than that. For an acknowledgement these are the tokens up to the consumer's
   name: four, or six in the longer form (docs/protocol/consumers.md).

An entry is right for every subject that finds it, because `forget` drops all that a change of
interest can have touched. A subject with an empty token is kept only as it is.

Replies go to one inbox many times in a row, and acknowledgements to one consumer, so of the second
kind, and of the third for acknowledgements, the entry that was found last is tried first: that
takes no lookup.
"""

from typing import Any

import slipstream.wire.ascii as char
from slipstream.wire.headers import begins_with
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard

_ACK = b"$JS.ACK."
# Tokens of an acknowledgement up to the consumer's name, in the shorter and in the longer form.
ACK_TOKENS_V1 = 4
ACK_TOKENS_V2 = 6


class PrefixCache:
    """Values other than None by subject; at most about `capacity` of each of the three kinds."""

    def __init__(self, capacity: int = 16_384) -> None:
        self.capacity = capacity
        self._exact: dict[bytes, Any] = {}
        self._by_last: dict[bytes, Any] = {}  # by all but the last token, with the dot
        self._by_first: dict[bytes, Any] = {}  # by the first tokens, with the dot
        self._tokens = 0  # of the subject that `_look_at` saw; 0 if one of them is empty
        self._last = 0  # where the last token begins
        self._ends = [0, 0, 0, 0, 0, 0]  # where the first n tokens end, dot included
        self._recent = b""  # the key in `_by_last` that was found last; b"" for none ...
        self._recent_value: Any = None  # ... and what it stands for
        self._recent_ack = b""  # the same for an acknowledgement, in `_by_first`
        self._recent_ack_value: object = None

    def __len__(self) -> int:
        return len(self._exact) + len(self._by_last) + len(self._by_first)

    def get(self, subject: bytes) -> Any:
        """The value that holds for `subject`; None if there is none."""
        if self._is_as_recent(subject):
            return self._recent_value
        is_ack = len(subject) > len(_ACK) and begins_with(subject, 0, _ACK)
        if is_ack and self._look_at(subject) > ACK_TOKENS_V1:
            return self._of_ack(subject)
        found = self._exact.get(subject)
        if found is not None:
            return found
        if self._look_at(subject) < 2:
            return None
        view = subject
        if self._by_last:
            key = view[: self._last]
            found = self._by_last.get(key)
            if found is not None:
                self._recent, self._recent_value = key, found
        if found is None and self._by_first and self._tokens > 2:
            found = self._by_first.get(view[: self._ends[0]])
            if found is None and self._tokens > 3:
                found = self._by_first.get(view[: self._ends[1]])
        return found

    def _of_ack(self, subject: bytes) -> object:
        """What holds for an acknowledgement, which `_look_at` has seen."""
        end = self._ends[self._first_tokens(subject) - 1]
        if end == len(self._recent_ack) and begins_with(subject, 0, self._recent_ack):
            return self._recent_ack_value
        view = subject
        key = view[:end]
        found = self._by_first.get(key)
        if found is None:
            return self._exact.get(subject)
        self._recent_ack, self._recent_ack_value = key, found
        return found

    def put(self, subject: bytes, value: Any, trie: PatternTrie) -> None:
        """Keep `value`, made of what `trie.match(subject)` just found, for all
        subjects of which it is true."""
        fixed = trie.fixed_tokens
        kept = self._exact
        key = subject
        if self._look_at(subject) > 1:
            first = self._first_tokens(subject)
            if first > 2:
                if 0 < fixed <= first:
                    kept = self._by_first
                    key = subject[: self._ends[first - 1]]
            elif 0 < fixed <= 2 and fixed < self._tokens - 1:
                kept = self._by_first
                key = subject[: self._ends[fixed - 1]]
            elif fixed or trie.any_last_token:
                kept = self._by_last
                key = subject[: self._last]
        if len(kept) >= self.capacity:
            kept.clear()
        kept[key] = value

    def forget(self, pattern: bytes) -> None:
        """Drop everything that may hold no more, because values of `pattern` came or went."""
        if has_wildcard(pattern):
            self.clear()
            return
        self._forget_recent()
        # A literal changes its own result, and takes part in what its prefixes stand for.
        self._exact.pop(pattern, None)
        if self._look_at(pattern) > 1:
            self._by_last.pop(pattern[: self._last], None)
            for tokens in range(1, min(self._tokens, 7)):
                self._by_first.pop(pattern[: self._ends[tokens - 1]], None)

    def clear(self) -> None:
        """Drop everything."""
        self._forget_recent()
        self._exact.clear()
        self._by_last.clear()
        self._by_first.clear()

    def _forget_recent(self) -> None:
        self._recent, self._recent_value = b"", None
        self._recent_ack, self._recent_ack_value = b"", None

    def values(self) -> list[Any]:
        """Everything that is kept."""
        return [*self._exact.values(), *self._by_last.values(), *self._by_first.values()]

    def _is_as_recent(self, subject: bytes) -> bool:
        """Whether a subject is the prefix that was found last and one token more."""
        view = subject
        n = len(self._recent)
        if not n or len(subject) <= n or not begins_with(subject, 0, self._recent):
            return False
        i = n
        while i < len(subject) and view[i] != char.DOT:
            i += 1
        return i == len(subject)

    def _first_tokens(self, subject: bytes) -> int:
        """How many first tokens decide about an acknowledgement; 0 for any other subject."""
        if self._tokens < 5:  # each has a character at least
            return 0
        if not begins_with(subject, 0, _ACK):
            return 0
        return ACK_TOKENS_V2 if self._tokens > 10 else ACK_TOKENS_V1

    def _look_at(self, subject: bytes) -> int:
        """Find out where tokens begin and end; the number of tokens, 0 if one is empty."""
        view = subject
        n = len(subject)
        tokens = 0
        start = 0
        self._tokens = 0
        for i in range(n):
            if view[i] == char.DOT:
                if i == start:
                    return 0
                start = i + 1
                if tokens < 6:
                    self._ends[tokens] = start
                tokens += 1
        if start == n:
            return 0
        self._last = start
        self._tokens = tokens + 1
        return self._tokens
