"""The calls about a cluster: who leads next, and which servers have copies
(docs/group.md#what-clients-see).

A group has one leader, of everything: whatever is asked to have another leader, the group gets one.
"""

from typing import TYPE_CHECKING

import msgspec

from slipstream.engine.api.consumers import find
from slipstream.engine.api.dispatch import Fields, Handler, Operation, Request
from slipstream.engine.api.requests import read_body, read_optional
from slipstream.engine.protocol.configurations import Placement
from slipstream.engine.protocol.errors import ApiError
from slipstream.engine.protocol.group import Group, find_server, successor
from slipstream.errors import Error
from slipstream.model.error_codes import ErrorCode

if TYPE_CHECKING:
    from slipstream.engine.jetstream.jetstream import JetStream


class StepDownRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.LEADER.STEPDOWN and those like it; the body is optional."""

    placement: Placement | None = None


class PeerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """STREAM.PEER.REMOVE and those like it."""

    peer: str = ""


class ServerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """SERVER.REMOVE and SERVER.EVACUATE: a server by its name or by its id among the peers."""

    peer: str = ""
    peer_id: str = ""


def step_down(group: Group, request: Request) -> Fields:
    """Have the leader hand over; the answer leaves before. Raises `ApiError`."""
    preferred = successor(group, read_optional(request, StepDownRequest).placement)
    try:
        group.step_down(preferred)
    except Error as error:
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=str(error)) from error
    return {"success": True}


def _step_down(js: "JetStream", request: Request) -> Fields:
    """STREAM.LEADER.STEPDOWN and CONSUMER.LEADER.STEPDOWN."""
    group = _group_with(js, request)
    return step_down(group, request)


def _move_peer(js: "JetStream", request: Request) -> Fields:
    """STREAM.PEER.REMOVE and those like it: all servers have all streams, so no other server could
    take the copy."""
    group = _group_with(js, request)
    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    peer = read_body(request, PeerRequest).peer
    if not peer:
        raise ApiError(ErrorCode.BAD_REQUEST)
    if not find_server(group, peer):
        raise ApiError(ErrorCode.CLUSTER_PEER_NOT_MEMBER)
    raise ApiError(ErrorCode.PEER_REMAP)


def _cancel_move(js: "JetStream", request: Request) -> Fields:
    """STREAM.CANCEL_MOVE: no stream moves."""
    _group_with(js, request)
    raise ApiError(ErrorCode.STREAM_RECONFIGURE_NOT_IN_PROGRESS)


def _group_with(js: "JetStream", request: Request) -> Group:
    """The group, which has the stream, or the consumer, that is named. Raises `ApiError`."""
    group = js.engine.group
    if group is None:
        raise ApiError(ErrorCode.CLUSTER_REQUIRED)
    if len(request.tokens) > 1:
        find(js, request.tokens[0], request.tokens[1])
    else:
        js.find(request.tokens[0])
    return group


def remove_server(group: Group, request: Request) -> Fields:
    """SERVER.REMOVE: have a follower leave the group. Raises `ApiError`."""
    name = _named_server(group, request)
    try:
        group.remove(name)
    except Error as error:
        raise ApiError(ErrorCode.CLUSTER_NO_PEERS, err=str(error)) from error
    return {"success": True}


def empty_server(group: Group, request: Request) -> Fields:
    """SERVER.EVACUATE: no server can be without the streams. Raises `ApiError`."""
    _named_server(group, request)
    raise ApiError(ErrorCode.CLUSTER_UN_SUPPORT_FEATURE)


def _named_server(group: Group, request: Request) -> str:
    """The name of the server that is asked about, by its name or id. Raises `ApiError`."""
    if request.is_empty:
        raise ApiError(ErrorCode.BAD_REQUEST)
    asked = read_body(request, ServerRequest)
    found = find_server(group, asked.peer or asked.peer_id)
    if not found:
        raise ApiError(ErrorCode.CLUSTER_SERVER_NOT_MEMBER)
    return found


# What the system account may ask: the subject's rest, the answer's type, who answers.
OF_SYSTEM = {
    b"META.LEADER.STEPDOWN": ("meta_leader_stepdown_response", step_down),
    b"SERVER.REMOVE": ("meta_server_remove_response", remove_server),
    b"SERVER.EVACUATE": ("meta_server_evacuate_response", empty_server),
}


def _operation(name: str, response: str, handler: Handler) -> Operation:
    return Operation(name, 1 + name.startswith("CONSUMER"), f"{response}_response", handler, {})


OPERATIONS = [
    _operation("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown", _step_down),
    _operation("STREAM.PEER.REMOVE", "stream_remove_peer", _move_peer),
    _operation("STREAM.PEER.EVACUATE", "stream_evacuate_peer", _move_peer),
    _operation("STREAM.CANCEL_MOVE", "stream_cancel_move", _cancel_move),
    _operation("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown", _step_down),
    _operation("CONSUMER.PEER.REMOVE", "consumer_remove_peer", _move_peer),
    _operation("CONSUMER.PEER.EVACUATE", "consumer_evacuate_peer", _move_peer),
]
