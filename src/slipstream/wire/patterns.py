"""Patterns and what belongs to them: which subscriptions, streams or filters match a subject.

A trie by tokens. Matching a subject walks all nodes that the tokens seen so far can have led to,
which is a handful, whatever the number of patterns that do not match.

Subjects whose last token is new each time (inboxes, ids) would defeat any cache of results. So a
match also tells how much of the subject decided it:

* `any_last_token`: any other non-empty last token would have given the same result, because no
  pattern names a literal there. A result for ``_INBOX.abc.1`` may be kept under ``_INBOX.abc.``.
* `fixed_tokens`: once so many tokens were read, only `>` (or nothing) was left to match. The result
  holds for every subject with the same first `fixed_tokens` tokens and at least one more. A result
  for ``$JS.ACK.S.C.1.7.7.123.0`` may be kept under ``$JS.ACK.S.C.``; 0 when there is no such point.
"""

from typing import Any


class _Node:
    """What may follow a sequence of tokens."""

    __slots__ = ("children", "star", "tail", "values")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
        self.star: _Node | None = None
        self.tail: list[Any] = []  # of patterns that end with `>` here
        self.values: list[Any] = []  # of patterns that end here


class PatternTrie:
    """Values by pattern. Patterns must be valid (`subjects.is_pattern`); `size` counts values."""

    def __init__(self) -> None:
        self._root = _Node()
        self.size = 0
        self.any_last_token = False
        self.fixed_tokens = 0

    def insert(self, pattern: bytes, value: Any) -> int:
        """Add `value` under `pattern`."""
        node = self._root
        self.size += 1
        for token in pattern.split(b"."):
            if token == b">":
                node.tail.append(value)
                return 0
            if token == b"*":
                if node.star is None:
                    node.star = _Node()
                node = node.star
                continue
            child = node.children.get(token)
            if child is None:
                child = _Node()
                node.children[token] = child
            node = child
        node.values.append(value)
        return 0

    def remove(self, pattern: bytes, value: Any) -> bool:
        """Take `value` away from `pattern`; False if it was not there. Nodes left empty go too."""
        tokens = pattern.split(b".")
        path = [self._root]
        node: _Node | None = self._root
        for token in tokens:
            if token == b">":
                break
            assert node is not None
            node = node.star if token == b"*" else node.children.get(token)
            if node is None:
                return False
            path.append(node)
        assert node is not None
        bucket = node.tail if tokens[-1] == b">" else node.values
        for i, kept in enumerate(bucket):
            if kept is value:
                del bucket[i]
                break
        else:
            return False
        self.size -= 1
        self._prune(path, tokens)
        return True

    def _prune(self, path: "list[_Node]", tokens: list[bytes]) -> None:
        for depth in range(len(path) - 1, 0, -1):
            node = path[depth]
            if node.children or node.star is not None or node.tail or node.values:
                return
            above = path[depth - 1]
            if tokens[depth - 1] == b"*":
                above.star = None
            else:
                del above.children[tokens[depth - 1]]

    def match(self, subject: bytes) -> list[Any]:
        """The values of all patterns that the literal `subject` matches.

        A subject with an empty token matches nothing.
        """
        self.any_last_token = False
        self.fixed_tokens = 0
        tokens = subject.split(b".")
        if b"" in tokens:
            return []
        found: list[Any] = []
        active = [self._root]
        n = len(tokens)
        depth = 0
        while depth < n:
            token = tokens[depth]
            depth += 1
            following: list[_Node] = []
            open_node = False  # some node still tells tokens apart, or counts them
            if depth == n:
                self.any_last_token = n > 1
            for node in active:
                if node.tail:
                    found.extend(node.tail)
                if node.children:
                    if depth == n:
                        self.any_last_token = False
                    child = node.children.get(token)
                    if child is not None:
                        following.append(child)
                child = node.star
                if child is not None:
                    following.append(child)
                if node.children or node.star is not None:
                    open_node = True
            if not open_node and not self.fixed_tokens and depth > 1:
                self.fixed_tokens = depth - 1
            active = following
            if not active:
                if not self.fixed_tokens and depth < n:
                    self.fixed_tokens = depth
                break
        if depth == n:
            for node in active:
                if node.values:
                    found.extend(node.values)
        return found

    def overlapping(self, pattern: bytes) -> list[Any]:
        """The values of all patterns that share at least one subject with `pattern`."""
        found: list[Any] = []
        _collect(self._root, pattern.split(b"."), 0, found)
        return found

    def values(self) -> list[Any]:
        """Every value, in no particular order."""
        found: list[Any] = []
        _collect(self._root, [b">"], 0, found)
        return found


def _collect(node: Any, tokens: list[bytes], depth: int, found: list[Any]) -> None:
    """Walk everything below `node` that `tokens[depth:]` can meet."""
    if depth == len(tokens):
        found.extend(node.values)
        return
    found.extend(node.tail)
    token = tokens[depth]
    if token == b">":
        for child in [*node.children.values(), *([node.star] if node.star is not None else [])]:
            found.extend(child.values)
            _collect(child, tokens, depth, found)
        return
    if token == b"*":
        for child in node.children.values():
            _collect(child, tokens, depth + 1, found)
    else:
        child = node.children.get(token)
        if child is not None:
            _collect(child, tokens, depth + 1, found)
    if node.star is not None:
        _collect(node.star, tokens, depth + 1, found)
