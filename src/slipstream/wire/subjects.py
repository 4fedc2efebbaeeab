"""Subjects and patterns: what is valid, what matches what (docs/protocol/client.md#subjects).

A subject is tokens joined by dots. In a pattern a token `*` stands for any one token and a last
token `>` for one or more; both only as whole tokens, so `foo*` is a literal. Everything here takes
bytes as they stand on the wire.
"""

import slipstream.wire.ascii as char


def is_pattern(subject: bytes) -> bool:
    """Whether one may subscribe to it: no empty token, no blank, `>` only at the end."""
    view = subject
    n = len(subject)
    if n == 0:
        return False
    start = 0
    i = 0
    while i <= n:
        if i == n or view[i] == char.DOT:
            if i == start:
                return False
            if i - start == 1 and view[start] == char.GREATER and i != n:
                return False
            start = i + 1
        else:
            c = view[i]
            if c in (char.SPACE, char.TAB, char.LF, char.CR, char.FF):
                return False
        i += 1
    return True


def is_literal(subject: bytes) -> bool:
    """Whether a message may be published under it: a pattern without wildcard tokens."""
    return is_pattern(subject) and not has_wildcard(subject)


def has_wildcard(subject: bytes) -> bool:
    """Whether some token is `*` or `>`."""
    view = subject
    n = len(subject)
    i = 0
    while i < n:
        if view[i] == char.STAR or view[i] == char.GREATER:
            if (i == 0 or view[i - 1] == char.DOT) and (i + 1 == n or view[i + 1] == char.DOT):
                return True
        i += 1
    return False


def matches(pattern: bytes, subject: bytes) -> bool:
    """Whether the literal `subject` matches `pattern`; both are taken to be valid."""
    p = pattern
    s = subject
    n = len(pattern)
    m = len(subject)
    i = 0
    j = 0
    while i < n:
        if j >= m:
            return False
        if p[i] == char.GREATER and i + 1 == n and (i == 0 or p[i - 1] == char.DOT):
            return True
        if (
            p[i] == char.STAR
            and (i + 1 == n or p[i + 1] == char.DOT)
            and (i == 0 or p[i - 1] == char.DOT)
        ):
            i += 1
            while j < m and s[j] != char.DOT:
                j += 1
        else:
            while i < n and j < m and p[i] == s[j] and p[i] != char.DOT:
                i += 1
                j += 1
        # Both have to stand at the end of a token now.
        if i == n or j == m:
            return i == n and j == m
        if p[i] != char.DOT or s[j] != char.DOT:
            return False
        i += 1
        j += 1
    return False


def is_subset(pattern: bytes, of: bytes) -> bool:
    """Whether everything that `pattern` matches is matched by `of` too."""
    ours = pattern.split(b".")
    theirs = of.split(b".")
    for i, wide in enumerate(theirs):
        if wide == b">":
            return len(ours) > i
        if i >= len(ours):
            return False
        if ours[i] == b">" or (wide != b"*" and ours[i] != wide):
            return False
    return len(ours) == len(theirs)


def overlaps(a: bytes, b: bytes) -> bool:
    """Whether some subject matches both patterns."""
    ours = a.split(b".")
    theirs = b.split(b".")
    for x, y in zip(ours, theirs, strict=False):
        if x == b">" or y == b">":
            return True
        if x != y and x != b"*" and y != b"*":
            return False
    return len(ours) == len(theirs)


def is_name(name: str, longest: int = 255) -> bool:
    """Whether it may name a stream or consumer: no blank, dot, wildcard or path separator."""
    return 0 < len(name.encode()) <= longest and not any(c in " \t\r\n\f.*>/\\" for c in name)
