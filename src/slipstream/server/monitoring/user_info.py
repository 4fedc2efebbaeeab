"""`$SYS.REQ.USER.INFO`: who a client is, and what it may do
(docs/protocol/accounts.md#events-of-the-system-account)."""

from typing import Any

from slipstream.engine.session.permissions import Permissions, SubscribePattern
from slipstream.engine.session.session import ClientSession


def user_info(session: ClientSession) -> dict[str, Any]:
    """The client that asks."""
    name = session.user.name if session.user is not None else ""
    info: dict[str, Any] = {
        "user": name,
        "account": session.account.name,
        "account_name": session.account.name,
    }
    permissions = session.permissions
    if permissions is not None:
        info["permissions"] = _shown(permissions)
    return info


def _shown(permissions: Permissions) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "publish": _lists(
            [_text(subject) for subject in permissions.publish_allow],
            [_text(subject) for subject in permissions.publish_deny],
        ),
        "subscribe": _lists(
            [_pattern(pattern) for pattern in permissions.subscribe_allow],
            [_pattern(pattern) for pattern in permissions.subscribe_deny],
        ),
    }
    if permissions.allow_responses is not None:
        replies_max, expires = permissions.allow_responses
        shown["responses"] = {"max": replies_max, "ttl": expires}
    return {name: value for name, value in shown.items() if value}


def _lists(allow: list[str], deny: list[str]) -> dict[str, list[str]]:
    return ({"allow": allow} if allow else {}) | ({"deny": deny} if deny else {})


def _text(subject: bytes) -> str:
    return subject.decode(errors="replace")


def _pattern(pattern: SubscribePattern) -> str:
    queue = f" {_text(pattern.queue)}" if pattern.queue else ""
    return _text(pattern.subject) + queue
