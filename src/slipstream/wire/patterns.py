"""Patterns and what belongs to them: which subscriptions, streams or filters match a subject.

A trie by tokens. Matching a subject walks all nodes that the tokens seen so far can have led to,
which is a handful, whatever the number of patterns that do not match.

Subjects whose last token is new each time (inboxes, ids) would defeat any cache of results. So a
match also tells how much of the subject decided it:

* `any_last_token`: any other non-empty last token would have given the same result, because no
  pattern names a literal there. A result for ``_INBOX.abc.1`` holds for ``_INBOX.abc.<one token>``.
* `fixed_tokens`: once so many tokens were read, only `>` (or nothing) was left to match. The result
  holds for every subject with the same first `fixed_tokens` tokens and at least one more; 0 when
  there is no such point. A result for ``$JS.ACK.S.C.1.7.7.123.0`` may hold for ``$JS.ACK.S.C.>``.

`prefix_cache.PrefixCache` keeps results by what they say.
"""

from typing import Any


class _Node:
    """What may follow a sequence of tokens. Parts appear when needed: tries have many nodes."""

    __slots__ = ("children", "star", "tail", "values")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.star: _Node | None = None
        self.tail: list[Any] | None = None  # of patterns that end with `>` here
        self.values: list[Any] | None = None  # of patterns that end here

    def is_empty(self) -> bool:
        """Whether nothing would be lost without this node."""
        return not (self.children or self.star is not None or self.tail or self.values)


class PatternTrie:
    """Values by pattern, to be found by subject.

    Patterns must be valid (`subjects.is_pattern`). The same value may be there several times, under
    the same pattern too; `len` counts them all.
    """

    def __init__(self) -> None:
        self._root = _Node()
        self.size = 0
        self.any_last_token = False  # about the last `match`
        self.fixed_tokens = 0

    def __len__(self) -> int:
        return self.size

    def insert(self, pattern: bytes, value: Any) -> int:
        """Add `value` under `pattern`."""
        node = self._root
        self.size += 1
        for token in pattern.split(b"."):
            if token == b">":
                if node.tail is None:
                    node.tail = []
                node.tail.append(value)
                return 0
            if token == b"*":
                if node.star is None:
                    node.star = _Node()
                node = node.star
                continue
            if node.children is None:
                node.children = {}
            child = node.children.get(token)
            if child is None:
                child = _Node()
                node.children[token] = child
            node = child
        if node.values is None:
            node.values = []
        node.values.append(value)
        return 0

    def remove(self, pattern: bytes, value: Any) -> bool:
        """Take `value` (that very object) away from `pattern`; False if it was not there."""
        tokens = pattern.split(b".")
        path = []
        node = self._root
        bucket = None
        for token in tokens:
            path.append(node)
            if token == b">":
                bucket = node.tail
                break
            child = node.star
            if token != b"*":
                child = node.children.get(token) if node.children is not None else None
            if child is None:
                return False
            node = child
        else:
            path.append(node)
            bucket = node.values
        if bucket is None:
            return False
        for i, kept in enumerate(bucket):
            if kept is value:
                del bucket[i]
                self.size -= 1
                if not bucket:
                    _prune(path, tokens)
                return True
        return False

    def match(self, subject: bytes) -> list[Any]:
        """The values of all patterns that the literal `subject` matches.

        A subject with an empty token matches nothing.
        """
        self.any_last_token = False
        self.fixed_tokens = 0
        found: list[Any] = []
        tokens = subject.split(b".")
        if b"" in tokens:
            return found
        n = len(tokens)
        any_last = n > 1
        decided = 1  # so many tokens made a difference; with none at all, there still must be one
        todo: list[_Node] = []  # branches that a `*` opened, each with its depth in `depths`
        depths: list[int] = []
        node: _Node | None = self._root
        depth = 0
        while True:
            if node is None:
                if not todo:
                    break
                node = todo.pop()
                depth = depths.pop()
            if depth == n:
                if node.values is not None:
                    found.extend(node.values)
                node = None
                continue
            if node.tail is not None:
                found.extend(node.tail)
            child = None
            if node.children:
                if depth == n - 1:
                    any_last = False
                child = node.children.get(tokens[depth])
            if depth >= decided and (node.star is not None or node.children):
                decided = depth + 1
            if node.star is not None:
                if child is None:
                    child = node.star
                else:
                    todo.append(node.star)
                    depths.append(depth + 1)
            node = child
            depth += 1
        self.any_last_token = any_last
        if decided < n:
            self.fixed_tokens = decided
        return found

    def overlapping(self, pattern: bytes) -> list[Any]:
        """The values of all patterns that share at least one subject with `pattern`."""
        found: list[Any] = []
        tokens = pattern.split(b".")
        todo = [self._root]
        depths = [0]
        while todo:
            node = todo.pop()
            depth = depths.pop()
            if depth == len(tokens):
                found.extend(node.values or ())
                continue
            found.extend(node.tail or ())
            token = tokens[depth]
            below: list[_Node] = []
            if token == b">" or token == b"*":
                below.extend((node.children or {}).values())
            elif node.children is not None and token in node.children:
                below.append(node.children[token])
            if node.star is not None:
                below.append(node.star)
            todo.extend(below)
            if token == b">":
                # It stands for one token or more: a pattern may end here, and it may go on.
                for child in below:
                    found.extend(child.values or ())
                depths.extend([depth] * len(below))
            else:
                depths.extend([depth + 1] * len(below))
        return found

    def values(self) -> list[Any]:
        """Every value, in no particular order."""
        return self.overlapping(b">")


def _prune(path: "list[_Node]", tokens: list[bytes]) -> None:
    """Take away the nodes that were left empty; `path` leads to them from the root."""
    for depth in range(len(path) - 1, -1, -1):
        node = path[depth]
        if not node.tail:
            node.tail = None
        if not node.values:
            node.values = None
        if depth == 0 or not node.is_empty():
            return
        above = path[depth - 1]
        if tokens[depth - 1] == b"*":
            above.star = None
        elif above.children is not None:
            del above.children[tokens[depth - 1]]
