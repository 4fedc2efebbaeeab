"""What may cross a link: the rights of its user, what is configured, and rules for JetStream.

Each side keeps the plain subjects of JetStream to itself, so that a request goes to the JetStream
that is nearest; the other one is reached under the name of its domain.
"""

from slipstream.engine.session.permissions import Permissions
from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subjects import has_wildcard, is_subset, overlaps

LOOP_PREFIX = b"$LDS."  # of subjects that show whether links form a loop; always allowed
CACHED_SUBJECTS_MAX = 1024

_JETSTREAM = (b"$JS.API.>", b"$KV.>", b"$OBJ.>")
_JETSTREAM_OF_SYSTEM = (b"$JSC.>", b"$NRG.>", *_JETSTREAM)


class SubjectRights:
    """Subjects that messages may have in one direction; an empty `allow` allows all, deny wins."""

    def __init__(self, allow: tuple[bytes, ...] = (), deny: tuple[bytes, ...] = ()) -> None:
        self.allow = allow
        self.deny = deny
        self._allowed = PatternTrie()
        self._denied = PatternTrie()
        for pattern in allow:
            self._allowed.insert(pattern, pattern)
        for pattern in deny:
            self._denied.insert(pattern, pattern)
        self._verdicts: dict[bytes, bool] = {}

    def permits(self, subject: bytes) -> bool:
        """Whether a message may have this subject; decisions are kept for a while."""
        verdict = self._verdicts.get(subject)
        if verdict is None:
            allowed = not self.allow or bool(self._allowed.match(subject))
            verdict = allowed and not self._denied.match(subject)
            if len(self._verdicts) >= CACHED_SUBJECTS_MAX:
                self._verdicts.clear()
            self._verdicts[subject] = verdict
        return verdict

    def may_match(self, pattern: bytes) -> bool:
        """Whether interest in `pattern` makes sense: a message that it matches may be permitted."""
        if pattern.startswith(LOOP_PREFIX):
            return True
        if not has_wildcard(pattern):
            return self.permits(pattern)
        if self.allow and not any(overlaps(allowed, pattern) for allowed in self.allow):
            return False
        return not any(is_subset(pattern, denied) for denied in self.deny)


class LinkRights:
    """Both directions of a link: what may be sent to the other server, and taken from it."""

    def __init__(self, send: SubjectRights, take: SubjectRights) -> None:
        self.send = send
        self.take = take


def user_rights(permissions: Permissions) -> tuple[SubjectRights, SubjectRights]:
    """What a leaf's user may be sent, and what it may publish.

    What cannot be kept to over a link is refused: an entry for one queue group allows nothing and
    denies its subject, and answers to what was received (`allow_responses`) need an entry.
    """
    nothing = (b">",)
    allowed, denied = permissions.subscribe_allow, permissions.subscribe_deny
    plain = tuple(entry.subject for entry in allowed if not entry.queue)
    send_deny = tuple(entry.subject for entry in denied)
    if allowed and not plain:
        send_deny += nothing
    take_deny = permissions.publish_deny
    if permissions.allow_responses is not None and not permissions.publish_allow:
        take_deny += nothing
    return (
        SubjectRights(plain, send_deny),
        SubjectRights(permissions.publish_allow, take_deny),
    )


def jetstream_denied(is_system: bool) -> tuple[bytes, ...]:
    """Subjects of JetStream that stay on each side of a link."""
    return _JETSTREAM_OF_SYSTEM if is_system else _JETSTREAM


def own_domain(domain: str, other: str) -> tuple[bytes, ...]:
    """Subjects of the own domain, which are answered here and never sent over a link."""
    return (f"$JS.{domain}.API.>".encode(),) if domain and domain != other else ()
