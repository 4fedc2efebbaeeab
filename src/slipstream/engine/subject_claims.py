"""Which stream of an account takes which subjects: no two may take the same message.

A tree of the subjects' tokens. Whether a new subject overlaps with one that is there takes a walk
along its own tokens, however many streams there are.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    """What the tokens up to here lead to."""

    owner: str = ""  # the stream with a subject that ends here
    children: "dict[str, _Node]" = field(default_factory=dict)


class SubjectClaims:
    """The subjects of an account's streams."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, owner: str, subjects: list[str]) -> None:
        """Stream `owner` takes these."""
        for subject in subjects:
            node = self._root
            for token in subject.split("."):
                node = node.children.setdefault(token, _Node())
            node.owner = owner

    def remove(self, subjects: list[str]) -> None:
        """Nobody takes these any more."""
        for subject in subjects:
            self._remove(self._root, subject.split("."), 0)

    def _remove(self, node: _Node, tokens: list[str], i: int) -> None:
        if i == len(tokens):
            node.owner = ""
            return
        child = node.children[tokens[i]]
        self._remove(child, tokens, i + 1)
        if not child.owner and not child.children:
            del node.children[tokens[i]]

    def is_taken(self, subject: str, owner: str) -> bool:
        """Whether a stream other than `owner` has a subject that overlaps with `subject`."""
        return _overlaps(self._root, subject.split("."), 0, owner)


def _overlaps(node: _Node, tokens: list[str], i: int, owner: str) -> bool:
    if i == len(tokens):
        return node.owner not in ("", owner)
    token = tokens[i]
    children = node.children
    if token == ">":
        return any(_has_other(child, owner) for child in children.values())
    rest = children.get(">")
    if rest is not None and rest.owner not in ("", owner):
        return True
    if token == "*":
        return any(_overlaps(c, tokens, i + 1, owner) for t, c in children.items() if t != ">")
    found = (children.get(token), children.get("*"))
    return any(child is not None and _overlaps(child, tokens, i + 1, owner) for child in found)


def _has_other(node: _Node, owner: str) -> bool:
    if node.owner not in ("", owner):
        return True
    return any(_has_other(child, owner) for child in node.children.values())
