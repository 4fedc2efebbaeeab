"""What monitoring wants to know of a connection, open or ended.

An ended session is remembered by these facts alone, without its buffers.
"""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from slipstream.engine.session.session import ClientSession

SUBSCRIPTIONS_REMEMBERED_MAX = 64  # of an ended connection


class SubscriptionFacts(msgspec.Struct, frozen=True):
    """One subscription of a connection."""

    subject: str
    queue: str
    sid: str
    delivered: int
    max_messages: int  # 0 is without bound


class Traffic(msgspec.Struct):
    """Messages and bytes of connections; `slow` counts those that were cut off."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    slow: int = 0

    def add(self, other: "Traffic | ClientSession | SessionFacts") -> None:
        """Count what another has counted too."""
        self.in_msgs += other.in_msgs
        self.in_bytes += other.in_bytes
        self.out_msgs += other.out_msgs
        self.out_bytes += other.out_bytes


class SessionFacts(msgspec.Struct):
    """One connection; times in ns since the epoch, durations in ns."""

    cid: int
    facts: dict[str, Any]  # what the listener knows: ip, port, tls and the like
    started: int
    last_activity: int
    stopped: int  # 0 while it is open
    reason: str
    rtt: int  # 0 if it was never measured
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    pending: int  # bytes that the client has not taken yet
    name: str
    lang: str
    version: str
    user: str  # who it is, or wanted to be
    account: str
    is_admitted: bool  # it has said who it is, or need not
    subscription_count: int
    subscriptions: list[SubscriptionFacts]  # empty where they were not asked for


def session_facts(
    session: "ClientSession", with_subscriptions: int = 0, stopped: int = 0
) -> SessionFacts:
    """The facts now, with up to so many subscriptions."""
    connect = session.connect
    listed = list(session.subscriptions.values())[:with_subscriptions]
    return SessionFacts(
        cid=session.cid,
        facts=session.facts,
        started=session.started,
        last_activity=session.last_activity,
        stopped=stopped,
        reason=session.close_reason,
        rtt=session.rtt or session.facts.get("first_rtt", 0),
        in_msgs=session.in_msgs,
        in_bytes=session.in_bytes,
        out_msgs=session.out_msgs,
        out_bytes=session.out_bytes,
        pending=0 if stopped else session.out.length() + session.transport.pending(),
        name=connect.name,
        lang=connect.lang,
        version=connect.version,
        user=session.user.name if session.user is not None else connect.user,
        account=session.account.name,
        is_admitted=session.user is not None,
        subscription_count=len(session.subscriptions),
        subscriptions=[
            SubscriptionFacts(
                subscription.subject.decode(errors="replace"),
                subscription.queue.decode(errors="replace"),
                subscription.sid.decode(errors="replace"),
                subscription.delivered,
                subscription.max_messages,
            )
            for subscription in listed
        ],
    )
