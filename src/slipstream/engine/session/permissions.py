"""What a user may publish and subscribe to (docs/protocol/accounts.md#permissions)."""

from dataclasses import dataclass

from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard, is_subset, matches, overlaps

CACHED_SUBJECTS_MAX = 1024
RIGHTS_KEPT = 4096  # before those that have run out are looked for


def quoted(name: bytes) -> bytes:
    """`name` in double quotes as Go's %q writes it: what cannot be printed is escaped."""
    if name.isascii() and name.isalnum():
        return b'"%b"' % name
    parts = []
    for char in name.decode("utf-8", "surrogateescape"):
        code = ord(char)
        if char in '"\\':
            parts.append("\\" + char)
        elif char.isprintable():
            parts.append(char)
        elif char in _GO_ESCAPES:
            parts.append(_GO_ESCAPES[char])
        elif 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
            parts.append(f"\\x{code - 0xDC00:02x}")
        elif code < 0x80:
            parts.append(f"\\x{code:02x}")
        else:
            parts.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return b'"%b"' % "".join(parts).encode()


_GO_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


@dataclass(slots=True, frozen=True)
class SubscribePattern:
    """An entry of a subscribe list: a subject, and a queue group ("" for any)."""

    subject: bytes
    queue: bytes = b""

    def covers(self, subject: bytes, queue: bytes) -> bool:
        """Whether a subscription lies within this entry."""
        if self.queue and (not queue or not matches(self.queue, queue)):
            return False
        return is_subset(subject, self.subject)


class Permissions:
    """Allow and deny lists; an empty allow list allows everything, deny wins.

    `allow_responses` is None or (how many replies each received reply subject may get, for how long
    in ns); negative numbers mean no bound.
    """

    def __init__(
        self,
        publish_allow: tuple[bytes, ...] = (),
        publish_deny: tuple[bytes, ...] = (),
        subscribe_allow: tuple[SubscribePattern, ...] = (),
        subscribe_deny: tuple[SubscribePattern, ...] = (),
        allow_responses: tuple[int, int] | None = None,
    ) -> None:
        self.publish_allow = publish_allow
        self.publish_deny = publish_deny
        self._allow = _trie(publish_allow)
        self._deny = _trie(publish_deny)
        self._publish_restricted = bool(publish_allow) or allow_responses is not None
        self.subscribe_allow = subscribe_allow
        self.subscribe_deny = subscribe_deny
        self.allow_responses = allow_responses
        self._verdicts: dict[bytes, bool] = {}
        self._filter = _trie(tuple(p.subject for p in subscribe_deny if not p.queue))
        self._receive_verdicts: dict[bytes, bool] = {}

    def may_publish(self, subject: bytes) -> bool:
        """Whether a message may be published under `subject`; decisions are kept for a while."""
        verdict = self._verdicts.get(subject)
        if verdict is None:
            allowed = not self._publish_restricted or bool(self._allow.match(subject))
            verdict = allowed and not self._deny.match(subject)
            if len(self._verdicts) >= CACHED_SUBJECTS_MAX:
                self._verdicts.clear()
            self._verdicts[subject] = verdict
        return verdict

    def may_subscribe(self, subject: bytes, queue: bytes) -> bool:
        """Whether the subscription as a whole is within what is allowed."""
        if self.subscribe_allow and not any(p.covers(subject, queue) for p in self.subscribe_allow):
            return False
        return not any(p.covers(subject, queue) for p in self.subscribe_deny)

    def must_filter(self, subject: bytes) -> bool:
        """Whether some messages of an allowed wildcard subscription are denied all the same."""
        if not self.subscribe_deny or not has_wildcard(subject):
            return False
        return any(not p.queue and overlaps(p.subject, subject) for p in self.subscribe_deny)

    def may_receive(self, subject: bytes) -> bool:
        """Whether a message under `subject` may be delivered to a wider subscription."""
        verdict = self._receive_verdicts.get(subject)
        if verdict is None:
            verdict = not self._filter.match(subject)
            if len(self._receive_verdicts) >= CACHED_SUBJECTS_MAX:
                self._receive_verdicts.clear()
            self._receive_verdicts[subject] = verdict
        return verdict


class ResponseRights:
    """What `allow_responses` lets one client answer: the reply subjects that it was sent.

    `replies` is how many answers each gets and `expires` for how long (ns); negative is no bound.
    """

    def __init__(self, replies: int, expires: int) -> None:
        self._replies = replies
        self._expires = expires
        self._rights: dict[bytes, list[int]] = {}  # [answers left, deadline or 0]
        self._prune_at = RIGHTS_KEPT

    def __len__(self) -> int:
        return len(self._rights)

    def grant(self, reply: bytes, now: int) -> None:
        """A message with this reply subject was received."""
        if len(self._rights) >= self._prune_at:
            live = {r: right for r, right in self._rights.items() if not 0 < right[1] < now}
            self._rights = live
            self._prune_at = max(RIGHTS_KEPT, 2 * len(live))
        self._rights[reply] = [self._replies, now + self._expires if self._expires > 0 else 0]

    def use(self, subject: bytes, now: int) -> bool:
        """Whether an answer may be published to `subject`; it counts."""
        right = self._rights.get(subject)
        if right is None:
            return False
        if 0 < right[1] < now:
            del self._rights[subject]
            return False
        right[0] -= 1
        if right[0] == 0:
            del self._rights[subject]
        return True


def _trie(patterns: tuple[bytes, ...]) -> PatternTrie:
    trie = PatternTrie()
    for pattern in patterns:
        trie.insert(pattern, pattern)
    return trie
