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

import slipstream.wire.ascii as char

_int = int  # the name `int` in a compiled module's annotations is a C type

MANY_VALUES = 32  # of one pattern; more are found by identity, not one after the other


class _Node:
    """What may follow a sequence of tokens. Parts appear when needed: tries have many nodes."""

    __slots__ = ("children", "star", "tail", "values")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.star: _Node | None = None
        # A list of values; where they are many, lists of them by identity.
        self.tail: Any = None  # of patterns that end with `>` here
        self.values: Any = None  # of patterns that end here

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
        self.visited = 0  # nodes that `find_overlap` and `find_cover` have looked at

    def __del__(self) -> None:
        _take_apart(self._root)

    def __len__(self) -> int:
        return self.size

    def insert(self, pattern: bytes, value: Any) -> None:
        """Add `value` under `pattern`."""
        node = self._root
        self.size += 1
        for token in pattern.split(b"."):
            if token == b">":
                node.tail = _with(node.tail, value)
                return
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
        node.values = _with(node.values, value)

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
        if bucket is None or not _take(bucket, value):
            return False
        self.size -= 1
        if not bucket:
            _prune(path, tokens)
        return True

    def match(self, subject: bytes) -> list[Any]:
        """The values of all patterns that the literal `subject` matches.

        A subject with an empty token matches nothing.
        """
        self.any_last_token = False
        self.fixed_tokens = 0
        found: list[Any] = []
        n = _count_tokens(subject)
        if not n:
            return found
        view = subject
        size = len(subject)
        any_last = n > 1
        decided = 1  # so many tokens made a difference; with none at all, there still must be one
        # Branches that a `*` opened, each with its depth and where its token begins; mostly there
        # are none.
        todo: list[tuple[int, int, _Node]] | None = None
        node: _Node | None = self._root
        depth = start = 0
        while True:
            if node is None:
                if not todo:
                    break
                depth, start, node = todo.pop()
            if depth == n:
                if node.values is not None:
                    _gather(found, node.values)
                node = None
                continue
            if node.tail is not None:
                _gather(found, node.tail)
            child = None
            end = start
            if node.children or node.star is not None:
                while end < size and view[end] != char.DOT:
                    end += 1
            if node.children:
                if depth == n - 1:
                    any_last = False
                child = node.children.get(view[start:end])
            if depth >= decided and (node.star is not None or node.children):
                decided = depth + 1
            if node.star is not None:
                if child is None:
                    child = node.star
                else:
                    if todo is None:
                        todo = []
                    todo.append((depth + 1, end + 1, node.star))
            node = child
            depth += 1
            start = end + 1
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
                if node.values is not None:
                    _gather(found, node.values)
                continue
            if node.tail is not None:
                _gather(found, node.tail)
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
                    if child.values is not None:
                        _gather(found, child.values)
                depths.extend([depth] * len(below))
            else:
                depths.extend([depth + 1] * len(below))
        return found

    def find_overlap(self, pattern: bytes, but: Any = None) -> Any:
        """A value, other than `but`, of some pattern that shares a subject with `pattern`; None if
        there is none.

        Patterns can be made of which each has to be compared with all others. A caller that
        takes many from a stranger looks at `visited`, and gives up in time.
        """
        tokens = pattern.split(b".")
        n = len(tokens)
        todo = [self._root]
        depths = [0]
        while todo:
            node = todo.pop()
            depth = depths.pop()
            self.visited += 1
            if depth >= n:  # the pattern ends here or, where it is more, with a `>` further up
                found = _other(node.values, but)
                if found is not None:
                    return found
                if depth == n:
                    continue
            found = _other(node.tail, but)
            if found is not None:
                return found
            token = tokens[depth] if depth < n else b">"
            below = n + 1 if token == b">" else depth + 1
            if token == b">" or token == b"*":
                if node.children is not None:
                    todo.extend(node.children.values())
                    depths.extend([below] * len(node.children))
            elif node.children is not None:
                child = node.children.get(token)
                if child is not None:
                    todo.append(child)
                    depths.append(below)
            if node.star is not None:
                todo.append(node.star)
                depths.append(below)
        return None

    def find_cover(self, pattern: bytes, but: Any = None) -> Any:
        """A value, other than `but`, of some pattern that matches all that `pattern` matches; None
        if there is none. What is said of `find_overlap` holds here, too."""
        tokens = pattern.split(b".")
        n = len(tokens)
        todo = [self._root]
        depths = [0]
        while todo:
            node = todo.pop()
            depth = depths.pop()
            self.visited += 1
            if depth == n:
                found = _other(node.values, but)
                if found is not None:
                    return found
                continue
            found = _other(node.tail, but)
            if found is not None:
                return found
            token = tokens[depth]
            if token == b">":
                continue
            if token != b"*" and node.children is not None:
                child = node.children.get(token)
                if child is not None:
                    todo.append(child)
                    depths.append(depth + 1)
            if node.star is not None:
                todo.append(node.star)
                depths.append(depth + 1)
        return None

    def items(self) -> list[tuple[bytes, Any]]:
        """Every value with its pattern, in no particular order."""
        found: list[tuple[bytes, Any]] = []
        todo: list[tuple[_Node, list[bytes]]] = [(self._root, [])]
        while todo:
            node, path = todo.pop()
            for bucket, tokens in ((node.values, path), (node.tail, [*path, b">"])):
                if bucket is not None:
                    values: list[Any] = []
                    _gather(values, bucket)
                    pattern = b".".join(tokens)
                    found += [(pattern, value) for value in values]
            if node.star is not None:
                todo.append((node.star, [*path, b"*"]))
            for token, child in (node.children or {}).items():
                todo.append((child, [*path, token]))
        return found

    def values(self) -> list[Any]:
        """Every value, in no particular order."""
        return self.overlapping(b">")


def _count_tokens(subject: bytes) -> _int:
    """How many tokens a subject has; 0 if one of them is empty."""
    view = subject
    tokens = 1
    before = char.DOT  # as at the beginning: no token ends here
    for i in range(len(subject)):
        if view[i] == char.DOT:
            if before == char.DOT:
                return 0
            tokens += 1
        before = view[i]
    return 0 if before == char.DOT else tokens


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


def _take_apart(root: _Node) -> None:
    """Give nodes up one after the other: a pattern of many tokens would take as many calls, each
    within the one before."""
    todo = [root]
    while todo:
        node = todo.pop()
        if node.star is not None:
            todo.append(node.star)
            node.star = None
        if node.children is not None:
            todo.extend(node.children.values())
            node.children = None


def _with(bucket: Any, value: Any) -> Any:
    """A pattern's values with one more."""
    if bucket is None:
        return [value]
    if isinstance(bucket, dict):
        bucket.setdefault(id(value), []).append(value)
        return bucket
    bucket.append(value)
    if len(bucket) <= MANY_VALUES:
        return bucket
    by_identity: dict[int, list[Any]] = {}
    for kept in bucket:
        by_identity.setdefault(id(kept), []).append(kept)
    return by_identity


def _take(bucket: Any, value: Any) -> bool:
    """Take one `value` (that very object) away; False if it is not there."""
    if isinstance(bucket, dict):
        same = bucket.get(id(value))
        if same is None:
            return False
        same.pop()
        if not same:
            del bucket[id(value)]
        return True
    for i, kept in enumerate(bucket):
        if kept is value:
            del bucket[i]
            return True
    return False


def _gather(found: list[Any], bucket: Any) -> None:
    """Add a pattern's values to those that were found."""
    if isinstance(bucket, dict):
        for same in bucket.values():
            found.extend(same)
    else:
        found.extend(bucket)


def _other(bucket: Any, but: Any) -> Any:
    """One of a pattern's values that is not `but`; None if there is none."""
    if bucket is None:
        return None
    for value in bucket.values() if isinstance(bucket, dict) else bucket:
        one = value[0] if isinstance(bucket, dict) else value
        if one is not but:
            return one
    return None
