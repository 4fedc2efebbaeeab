"""The operations of a client that are one line: CONNECT, SUB, UNSUB, PING and PONG.

They are rare beside PUB, so they live here in plain Python (docs/protocol/client.md).
"""

from typing import TYPE_CHECKING, Any

import msgspec

from slipstream.engine.protocol.json_body import Int64, TooDeepError, parse, read_number
from slipstream.engine.session.permissions import quoted
from slipstream.engine.session.routing import Subscription
from slipstream.wire.client_frames import ClientFrames
from slipstream.wire.operations import CONNECT, ERR, INFO, PING, PONG, SUB, UNSUB
from slipstream.wire.subjects import is_pattern

if TYPE_CHECKING:
    from slipstream.engine.session.session import ClientSession

_TOO_DEEP = b"Maximum JSON nesting exceeded"
PROTOCOLS = (0, 1)  # with 1 a client takes INFO at any time


class ConnectOptions(msgspec.Struct):
    """What CONNECT may say; the defaults are those of a client that says nothing."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: Int64 = 0
    headers: bool = False
    no_responders: bool = False
    user: str = ""
    password: str = msgspec.field(name="pass", default="")
    auth_token: str = ""
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False

    @property
    def has_credentials(self) -> bool:
        """Whether the client tries to be somebody."""
        return bool(self.user or self.password or self.auth_token or self.jwt or self.nkey)


def handle_line(session: "ClientSession", op: int, frames: ClientFrames) -> None:
    """Act on an operation other than PUB."""
    if op == CONNECT:
        _connect(session, frames.argument())
        return
    if not session.ready and not session.engine.admit_without_connect(session):
        session.fail(b"Authorization Violation", "Authentication Failure")
        return
    if op == PING:
        _ping(session)
    elif op == PONG:
        _pong(session)
    elif op == SUB:
        _subscribe(session, frames.args())
    elif op == UNSUB:
        _unsubscribe(session, frames.args())
    elif op == ERR:
        session.fail(b"", "Parse Error")
    elif op == INFO:
        _info(session, frames.argument())


def _connect(session: "ClientSession", argument: bytes) -> None:
    """CONNECT; a repeated one starts over, without any subscription."""
    try:
        text = argument.decode("utf-8", "replace").encode()
        fields = parse(text, dict[str, Any] | None) or {}
        said = {name.lower(): value for name, value in fields.items() if value is not None}
        options = msgspec.convert(said, ConnectOptions)
    except TooDeepError:
        session.fail(_TOO_DEEP, "Protocol Violation")
        return
    except msgspec.MsgspecError:
        session.fail(b"", "Protocol Violation")
        return
    if session.subscriptions:
        session.drop_subscriptions()
    session.connect = options
    session.verbose = options.verbose
    session.pedantic = options.pedantic
    session.echo = options.echo
    # Any other is refused once the client is known; it may be larger than the field.
    session.protocol = options.protocol if options.protocol in PROTOCOLS else 0
    session.headers = options.headers and not session.engine.options.no_header_support
    session.no_responders = options.no_responders
    session.engine.authenticate(session)


def accept(session: "ClientSession") -> None:
    """The client is who it says: what it asked for in CONNECT is looked at only now."""
    options = session.connect
    if options.account or options.new_account:
        session.fail(b"Authorization Violation", "Authentication Failure")
    elif options.protocol not in PROTOCOLS:
        session.fail(b"invalid client protocol", "Bad Client Protocol Version")
    elif session.no_responders and not session.headers:
        session.fail(b"no responders requires headers support", "No Responders Requires Headers")
    elif session.verbose:
        session.put_line(b"+OK\r\n")


def _info(session: "ClientSession", argument: bytes) -> None:
    """INFO from a client means nothing, but has to be an object."""
    try:
        parse(argument, dict[str, Any])
    except TooDeepError:
        session.fail(_TOO_DEEP, "Protocol Violation")
    except msgspec.MsgspecError:
        session.fail(b"", "Protocol Violation")


def _ping(session: "ClientSession") -> None:
    session.put_line(b"PONG\r\n")
    if session.protocol >= 1 and not session.pinged:
        session.pinged = True
        # Until a PING of ours is answered, this is what is known of the way to the client.
        session.facts["first_rtt"] = session.clock.now - session.started
        session.engine.send_info(session, connected=True)


def _pong(session: "ClientSession") -> None:
    session.pings_out = 0
    if session.ping_sent:
        session.rtt = session.clock.now - session.ping_sent
        session.ping_sent = 0


def _subscribe(session: "ClientSession", args: list[bytes]) -> None:
    if len(args) not in (2, 3):
        session.fail(b"", "Protocol Violation")
        return
    subject, sid = args[0], args[-1]
    queue = args[1] if len(args) == 3 else b""
    if sid not in session.subscriptions:
        refusal = _refusal(session, subject, queue)
        if refusal:
            session.put_error(refusal)
            return
        permissions: Any = session.permissions
        if permissions is not None and permissions.must_filter(subject):
            session.filters = True  # for good, and for every subscription, as in nats-server
        subscription = Subscription(session, subject, queue, sid)
        session.subscriptions[sid] = subscription
        session.account.subscribe(subscription)
    if session.verbose:
        session.put_line(b"+OK\r\n")


def _refusal(session: "ClientSession", subject: bytes, queue: bytes) -> bytes:
    """Why the subscription is not allowed; b"" if it is."""
    options: Any = session.engine.options
    if not is_pattern(subject):
        return b"Invalid Subject"
    text = b"Permissions Violation for Subscription to " + quoted(subject)
    if queue:
        with_queue = text + b" using queue " + quoted(queue)
        if queue == b"_sys_":
            return with_queue
    if options.max_sub_tokens and subject.count(b".") + 1 > options.max_sub_tokens:
        return text + b", too many tokens"
    permissions = session.permissions
    if permissions is not None and not permissions.may_subscribe(subject, queue):
        return with_queue if queue else text
    most = session.engine.max_subscriptions(session)
    if most > 0 and len(session.subscriptions) >= most:
        return b"maximum subscriptions exceeded"
    return b""


def _unsubscribe(session: "ClientSession", args: list[bytes]) -> None:
    if len(args) not in (1, 2):
        session.fail(b"", "Protocol Violation")
        return
    subscription = session.subscriptions.get(args[0])
    most = read_number(args[1]) if len(args) == 2 else 0
    if subscription is not None:
        if most > subscription.delivered:
            subscription.max_messages = most
        else:
            del session.subscriptions[args[0]]
            session.account.unsubscribe(subscription)
    if session.verbose:
        session.put_line(b"+OK\r\n")
