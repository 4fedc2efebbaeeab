"""What to say where a group has not served for long: clients see silence, and an operator may have
to do something."""

from collections.abc import Collection

from slipstream.group import Member
from slipstream.model.durations import SECOND
from slipstream.server.group.joining import server_name_of

AFTER = 10 * SECOND  # ns: by then a majority that reaches each other serves
AGAIN = 60 * SECOND  # ns from one line to the next


class Standstill:
    """Watches a member of the group; one that follows somebody leaves it to that one."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._say_at = 0

    def look(self, now: int, member: Member, linked: Collection[str]) -> str:
        """A line for the log; "" if there is nothing to say. `linked` are the servers to which
        there is a connection."""
        is_led = bool(member.epoch) or member.leader_name not in ("", member.name)
        if is_led or member.failed or member.name not in member.membership.members:
            self._since = None
            return ""
        if self._since is None:
            self._since, self._say_at = now, now + AFTER
        if now < self._say_at:
            return ""
        self._say_at = now + AGAIN
        why = _of_leader(now, member, linked) if member.leader_name else _of_others(member, linked)
        return f"The group has not served for {(now - self._since) // SECOND} s: {why}"


def _of_leader(now: int, member: Member, linked: Collection[str]) -> str:
    """What keeps a leader from serving."""
    log = member.log
    found = []
    for other in member.followers(now):
        name = server_name_of(other.name)
        if other.name not in linked:
            found.append(f"{name} cannot be reached")
        elif other.synced < log.base.index:
            found.append(f"{name} lacks entries that are gone here, and has to get files first")
        elif other.synced < log.end.index:
            found.append(f"{name} has those up to {other.synced}")
    return (
        f"this server is to lead it, and a majority has to have its entries up to {log.end.index}; "
        + ", ".join(found)
    )


def _of_others(member: Member, linked: Collection[str]) -> str:
    """What keeps anybody from leading, as far as this server knows."""
    membership = member.membership
    there = [name for name in membership.everyone if name == member.name or name in linked]
    gone = [server_name_of(name) for name in membership.everyone if name not in there]
    if not membership.is_quorum(there):
        return (
            f"{', '.join(gone)} cannot be reached, and the others are no majority: start them with "
            "their stores, or see to the network"
        )
    if not member.log.is_whole:
        return (
            "the log of this server has lost entries that it had answered for, and nobody who has "
            "them all leads: start all servers with their stores"
        )
    if member.is_installing:
        return "this server waits for files of another one, and nobody has sent them"
    reason = f", and {', '.join(gone)} cannot be reached" if gone else ""
    return f"nobody could begin to lead{reason}: the logs of the others may say why"
