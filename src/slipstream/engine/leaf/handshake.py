"""How two servers agree on a link, and the operations of a link that are one line.

dials                                     accepts
        <── INFO ──     who it is, its domain, a nonce, which compression it wants
       [── INFO ──>     if both want one, which: all bytes from here on are packed
        <── INFO ──]    the same as before
        ── CONNECT ─>   credentials, name, domain, what it does not want to be sent
        <── INFO ──     the account, and what the leaf may send and be sent
        <── LS+ ──>     the interest of both
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.leaf.compression import OFF, LinkCompression
from slipstream.engine.leaf.rights import LOOP_PREFIX
from slipstream.engine.protocol.json_body import Int64, TooDeepError, parse, read_number
from slipstream.engine.protocol.options import API_LEVEL, VERSION
from slipstream.engine.session.connect import ConnectOptions
from slipstream.engine.session.permissions import quoted
from slipstream.engine.session.routing import Subscription
from slipstream.errors import Error
from slipstream.model.durations import SECOND
from slipstream.wire.leaf_frames import LeafFrames
from slipstream.wire.operations import CONNECT, ERR, INFO, PING, PONG, SUB, UNSUB
from slipstream.wire.subjects import is_literal, is_pattern

if TYPE_CHECKING:
    from slipstream.engine.leaf.session import LeafSession

AGAIN_AFTER_REFUSAL = 30 * SECOND  # after a loop, or a right that is missing: it will not go away
_WEIGHT_MAX = 2**31 - 1
_MESSAGE_BYTES_MAX = 64 * 1024 * 1024  # that a hub may announce and a leaf takes

Prove = Callable[[str], dict[str, str]]  # from the nonce to the fields of CONNECT that prove it


class Remote(msgspec.Struct, kw_only=True):
    """How an end that dials introduces itself, and what it lets pass."""

    account: str  # its own, whose subjects are shared
    prove: Prove
    hub: bool = False  # the roles are turned around
    compression: LinkCompression = msgspec.field(default_factory=LinkCompression)
    deny_imports: tuple[str, ...] = ()  # not taken from the hub
    deny_exports: tuple[str, ...] = ()  # not sent to it


class SubjectLists(msgspec.Struct, kw_only=True):
    """`import` and `export` of INFO."""

    allow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)


class LeafInfo(msgspec.Struct, kw_only=True):
    """What INFO of a server that accepts leaf nodes says."""

    server_id: str = ""
    server_name: str = ""
    cluster: str = ""
    domain: str = ""
    headers: bool = False
    max_payload: Int64 = 0
    nonce: str = ""
    compression: str = ""
    info_on_connect: bool = False
    connect_info: bool = False
    remote_account: str = ""
    leafnode_urls: list[str] | None = None
    imports: SubjectLists | None = msgspec.field(name="import", default=None)
    exports: SubjectLists | None = msgspec.field(name="export", default=None)


class LeafConnect(ConnectOptions, kw_only=True):
    """What CONNECT of a server that dials says."""

    server_id: str = ""
    domain: str = ""
    cluster: str = ""
    is_hub: bool = False
    gateway: str = ""
    remote_account: str = ""
    deny_pub: list[str] = msgspec.field(default_factory=list)


def handle_line(session: "LeafSession", op: int, frames: LeafFrames) -> None:
    """Act on an operation other than a message."""
    if op == ERR and (session.ready or session.remote is not None):
        _reported_error(session, frames.argument())
    elif op == INFO:
        _info(session, frames.argument())
    elif op == CONNECT:
        _connect(session, frames.argument())
    elif op == PING and (session.ready or session.remote is not None):
        session.put_line(b"PONG\r\n")
    elif op == PONG:
        session.pings_out = 0
        if session.ping_sent:
            session.rtt = session.clock.now - session.ping_sent
            session.ping_sent = 0
            if session.packing is not None:
                session.packing.measured(session.rtt)
    elif not session.ready:
        session.fail(b"Authorization Violation", "Authentication Failure")
    elif op == SUB:
        _subscribe(session, frames.args())
    elif op == UNSUB:
        _unsubscribe(session, frames.args())


def _read(session: "LeafSession", argument: bytes, into: Any) -> Any:
    """The JSON object of INFO or CONNECT; None if it is none, and the link has ended."""
    try:
        fields = parse(argument.decode("utf-8", "replace").encode(), dict[str, Any])
        said = {name: value for name, value in fields.items() if value is not None}
        return msgspec.convert(said, into)
    except (TooDeepError, msgspec.MsgspecError):
        session.fail(b"", "Protocol Violation")
        return None


# -- the end that accepts ------------------------------------------------------------------------


def send_info(session: "LeafSession", **more: Any) -> None:
    """Say who this server is; with `more`, what only holds for this leaf."""
    engine = session.engine
    options = engine.options
    listener = engine.leaves.listener
    info: dict[str, Any] = {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "version": VERSION,
        "proto": 1,
        "go": "slipstream",
        "host": listener.host,
        "port": listener.port,
        "headers": not options.no_header_support,
        "auth_required": True,
        "max_payload": options.max_payload,
        "client_id": session.cid,
        "compression": listener.compression.mode,
        "api_lvl": API_LEVEL,
        "info_on_connect": True,
        "leafnode_urls": listener.urls,
    }
    optional = {
        "tls_required": listener.tls_required,
        "tls_verify": listener.tls_verify,
        "cluster": engine.group.name if engine.group else "",
        "jetstream": options.jetstream,
        "domain": options.domain,
    }
    info |= {name: value for name, value in optional.items() if value}
    session.put_line(b"INFO " + msgspec.json.encode(info | more) + b" \r\n")


def _compress_as_asked(session: "LeafSession", argument: bytes) -> None:
    """INFO of a server that dials: it packs all that follows."""
    if session.ready or session.packing is not None:
        return  # it says something about itself, once more
    info = _read(session, argument, LeafInfo)
    if info is None:
        return
    wanted = session.engine.leaves.listener.compression
    mode = wanted.agreed(info.compression)
    if mode != OFF:
        session.compress(wanted, mode)
        send_info(session)


def _connect(session: "LeafSession", argument: bytes) -> None:
    """CONNECT: the other server is about to become a leaf."""
    if session.remote is not None or session.ready:
        session.fail(b"", "Protocol Violation")
        return
    said = _read(session, argument, LeafConnect)
    if said is None:
        return
    session.connect = said
    if said.lang:  # servers do not say in which language they are written
        session.fail(b"attempted to connect to leaf node port", "Incorrect Port")
        return
    if said.gateway:
        text = f'Rejecting connection from gateway "{said.gateway}" on the leafnode port'
        session.fail(text.encode(), "Wrong Gateway")
        return
    session.server, session.cluster, session.domain = said.name, said.cluster, said.domain
    session.remote_account = said.remote_account
    session.is_spoke = said.is_hub
    session.headers = session.headers and said.headers
    session.engine.leaves.authenticate(session)


# -- the end that dials --------------------------------------------------------------------------


def _info(session: "LeafSession", argument: bytes) -> None:
    """INFO: of the server that was dialled, or its word that this one is welcome."""
    remote = session.remote
    if remote is None:
        _compress_as_asked(session, argument)
        return
    info = _read(session, argument, LeafInfo)
    if info is None:
        return
    if session.has_info:
        if info.connect_info and not session.ready:
            session.remote_account = info.remote_account
            session.engine.leaves.accepted(session, info.imports, info.exports)
        session.watcher.discovered(info.leafnode_urls or [])
        return
    if info.leafnode_urls is None and not info.info_on_connect:
        text = "it is not a leaf node port; clients and leaf nodes have ports of their own"
        session.watcher.complained(session, text, True)
        session.fail(b"", "Incorrect Port")
        return
    if session.packing is None and _ask_for_compression(session, remote, info):
        return
    session.has_info = True
    session.server, session.cluster, session.domain = info.server_name, info.cluster, info.domain
    session.headers = session.headers and info.headers
    session.peer_max_payload = info.max_payload
    largest = max(session.engine.options.max_payload, info.max_payload)
    session.peer_payload_limit = min(largest, _MESSAGE_BYTES_MAX)
    try:
        introduction = _introduction(session, remote, info)
    except Error as error:  # the file with its key is there no more
        session.watcher.complained(session, str(error), True)
        session.fail(b"", "Authentication Failure")
        return
    session.put_line(introduction)
    if not info.info_on_connect:
        session.engine.leaves.accepted(session, info.imports, info.exports)
    session.watcher.discovered(info.leafnode_urls or [])


def _ask_for_compression(session: "LeafSession", remote: Remote, info: LeafInfo) -> bool:
    """Have all that follows packed if both want that; the other server then says INFO again."""
    mode = remote.compression.agreed(info.compression)
    if mode == OFF:
        return False
    engine = session.engine
    said = {
        "server_id": engine.server_id,
        "server_name": engine.server_name,
        "version": VERSION,
        "proto": 1,
        "headers": session.headers,
        "max_payload": engine.options.max_payload,
        "compression": mode,
    }
    session.put_line(b"INFO " + msgspec.json.encode(said) + b" \r\n")
    session.compress(remote.compression, mode)
    return True


def _introduction(session: "LeafSession", remote: Remote, info: LeafInfo) -> bytes:
    engine = session.engine
    said: dict[str, Any] = {
        "version": VERSION,
        **remote.prove(info.nonce),
        "server_id": engine.server_id,
        "name": engine.server_name,
        "cluster": engine.group.name if engine.group else engine.server_name,
        "headers": session.headers,
        "jetstream": engine.options.jetstream,
        "compress_mode": session.packing.mode if session.packing else OFF,
        "remote_account": session.account.name,
    }
    optional = {
        "domain": engine.options.domain,
        "is_hub": remote.hub,
        "deny_pub": list(remote.deny_imports),
    }
    said |= {name: value for name, value in optional.items() if value}
    return b"CONNECT " + msgspec.json.encode(said) + b"\r\n"


# -- both ends -----------------------------------------------------------------------------------


def _reported_error(session: "LeafSession", argument: bytes) -> None:
    """-ERR: the other server has refused something, and most likely closes the link."""
    text = argument.decode("utf-8", "replace").strip("'")
    session.watcher.complained(session, text, False)
    if "Loop detected" in text or text.startswith("Permissions Violation for Subscription"):
        session.watcher.wait(AGAIN_AFTER_REFUSAL)
        session.fail(b"", "Protocol Violation")


def _loop(session: "LeafSession") -> None:
    """What was announced here has come back: over this link, messages would go in circles."""
    wait = AGAIN_AFTER_REFUSAL // SECOND
    text = (
        f'Loop detected for leafnode account="{session.account.name}". '
        f"Delaying attempt to reconnect for {wait}s"
    )
    session.watcher.complained(session, text, True)
    session.watcher.wait(AGAIN_AFTER_REFUSAL)
    session.fail(text.encode(), "Protocol Violation")


def _subscribe(session: "LeafSession", args: list[bytes]) -> None:
    """LS+: interest of the other server, or another number of members of a queue group."""
    if len(args) not in (1, 3):
        session.fail(b"", "Protocol Violation")
        return
    subject = args[0]
    queue = args[1] if len(args) == 3 else b""
    weight = min(max(read_number(args[2]), 1), _WEIGHT_MAX) if queue else 1
    if subject == session.account.loop_subject:
        _loop(session)
        return
    key = subject + b" " + queue if queue else subject
    known = session.subscriptions.get(key)
    if known is not None:
        if known.weight != weight:
            session.account.reweigh(known, weight)
        return
    if not is_pattern(subject):
        session.put_error(b"Invalid Subscription")
        return
    if not session.rights.send.may_match(subject):
        if not session.is_spoke and is_literal(subject) and not _is_jetstream(subject):
            session.put_error(b"Permissions Violation for Subscription to " + quoted(subject))
        return
    most = session.engine.max_subscriptions(session)
    if 0 < most <= len(session.subscriptions) and not subject.startswith(LOOP_PREFIX):
        session.put_error(b"maximum subscriptions exceeded")
        return
    subscription = Subscription(session, subject, queue, key)
    subscription.weight = weight
    session.subscriptions[key] = subscription
    session.account.subscribe(subscription)


def _is_jetstream(subject: bytes) -> bool:
    """Whether a subject stays on each side anyway, which is no reason to complain."""
    return subject.startswith((b"$JS.", b"$KV.", b"$OBJ."))


def _unsubscribe(session: "LeafSession", args: list[bytes]) -> None:
    """LS-: nobody is interested there any more."""
    if len(args) not in (1, 2):
        session.fail(b"", "Protocol Violation")
        return
    subscription = session.subscriptions.pop(b" ".join(args), None)
    if subscription is not None:
        session.account.unsubscribe(subscription)
