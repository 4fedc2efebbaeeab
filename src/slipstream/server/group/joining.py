"""How a server comes into a group that is there, and how it is told from an earlier one.

A server whose store is empty, where others have a group, has promised nothing under its name that
it knows of. So it takes a name of its own among the members, the server's name and a random number
("n3 5e0c1a42"), under which nobody has promised anything, and waits until the leader has it join.

The leader does that by itself in two cases, one server at a time (`next_members`):

* A member has the newcomer's server name, and is not there: the newcomer takes its place. The lost
  one is no member any more, if it ever comes back.
* The group has fewer servers than the leader's configuration names.
"""

import secrets
from collections.abc import Collection


def new_member_name(server_name: str) -> str:
    """For a server that joins a group."""
    return f"{server_name} {secrets.token_hex(4)}"


def server_name_of(member: str) -> str:
    """The server's own name, which has no spaces."""
    return member.partition(" ")[0]


def next_members(
    members: tuple[str, ...], waiting: Collection[str], there: Collection[str], size: int
) -> tuple[str, ...] | None:
    """The members with one of those that wait to join; None if none may. `there` are those that are
    connected, `size` is the number of servers in the configuration."""
    for newcomer in sorted(waiting):
        name = server_name_of(newcomer)
        old = next((one for one in members if server_name_of(one) == name), None)
        if old is None and len(members) < size:
            return (*members, newcomer)
        if old is not None and old not in there:
            return tuple(newcomer if one == old else one for one in members)
    return None
