"""Conversations with a server, line by line, that two servers have to lead alike.

A script is a list of (who, bytes): each connection is opened when it first speaks. A step that ends
in PING is waited for, so that what one connection did is done before another one speaks. Scripts
are grouped by the configuration of the server that they are for.
"""

import json
from collections.abc import Iterator

Script = tuple[str, list[tuple[str, bytes]]]

PING = b"PING\r\n"
QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
VERBOSE = b'CONNECT {"verbose":true,"pedantic":false}\r\n'
PEDANTIC = b'CONNECT {"verbose":false,"pedantic":true}\r\n'
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"

OPEN = "port: -1\n"
TOKEN = "port: -1\nauthorization { token: sekrit }\n"
ACCOUNTS = """
port: -1
accounts {
  A {
    jetstream: { max_streams: 2, max_file: 100k, max_mem: 50k }
    limits: { max_conn: 5, max_subs: 4, max_payload: 100 }
    users: [
      { user: all, password: x }
      { user: nopass }
      { user: p1, password: x, permissions: {
          publish: { allow: ["foo.>", "bar"], deny: ["foo.secret"] }
          subscribe: { allow: ["sub.>", "q1 grp", "q2 v1.*", "_INBOX.>"]
                       deny: ["sub.deny", "sub.x.>"] } } }
      { user: p2, password: x, permissions: {
          publish: { allow: [] }, subscribe: "a.b", allow_responses: true } }
      { user: p3, password: x, permissions: {
          subscribe: { deny: "secret.>" }, publish: "pp"
          allow_responses: { max: 2, expires: "1m" } } }
      { user: p4, password: x, permissions: {
          subscribe: { deny: ["dq dd", "wide.inner"] }, publish: { deny: ">" } } }
    ]
  }
  B {
    jetstream: enabled
    users: [
      { user: b, password: x }
      { user: ct, password: x, allowed_connection_types: ["WEBSOCKET"] }
    ]
  }
  N { users: [ { user: n, password: x } ] }
}
no_auth_user: b
"""


def login(user: str, password: str | None = "x", **options: object) -> bytes:
    """CONNECT as `user`."""
    said: dict[str, object] = {"verbose": False, "pedantic": False, "headers": True}
    said |= {"no_responders": True, "user": user}
    if password is not None:
        said["pass"] = password
    return b"CONNECT %b\r\n" % json.dumps(said | options).encode()


def pub(*subjects: bytes) -> bytes:
    """A one-byte publish to each subject (with reply, if it has two words)."""
    return b"".join(b"PUB %b 1\r\nx\r\n" % subject for subject in subjects)


def openings() -> Iterator[Script]:
    """What comes first on a connection."""
    for argument in (
        b"{}", b'{"protocol":2}', b'{"protocol":-1}', b'{"no_responders":true}',
        b'{"account":"X"}', b'{"new_account":true}', b"{", b'{"verbose":"yes"}', b"[]", b"null",
        b"", b"{} x", b'{"verbose":null,"name":null}', b'{"VERBOSE":false,"Pedantic":false}',
        b'{"verbose":false,"zzz":[1,2]}',
    ):  # fmt: skip
        yield f"CONNECT {argument!r}", [("a", b"CONNECT %b\r\nSUB x.y 1\r\n" % argument + PING)]
    yield "no CONNECT", [("a", b"SUB x.y 1\r\n" + pub(b"x.y") + PING)]
    yield (
        "lower case",
        [("a", b'connect {"verbose":false}\r\nsub x.y 1\r\npub x.y 0\r\n\r\nping\r\n')],
    )
    yield (
        "news of the account",
        [("a", PING + PING + b'CONNECT {"verbose":false,"protocol":1}\r\n' + PING + PING)],
    )
    yield (
        "CONNECT twice",
        [("a", QUIET + b"SUB x.y 1\r\n" + pub(b"x.y") + VERBOSE + pub(b"x.y") + PING)],
    )


def frames() -> Iterator[Script]:
    """Lines that are right, odd and wrong."""
    for line in (
        b"PUB a -1\r\n\r\n", b"PUB a x\r\n", b"PUB a\r\n", b"PUB a b c d\r\n",
        b"PUB a 0000000001\r\nx\r\n", b"PUB a 1\r\nxy\r\n", b"PUB a 2\r\nx\r\n\r\n", b"SUB a\r\n",
        b"SUB a b c d\r\n", b"UNSUB\r\n", b"UNSUB 1 2 3\r\n", b"MSG a 1 1\r\nx\r\n",
        b"-ERR 'x'\r\n", b"+OK\r\n", b"INFO {}\r\n", b"INFO x\r\n", b"\r\n", b"FOO\r\n",
        b"PINGxyz\r\n", b"PING\n", b"SUB a 1\nPUB a 1\nx\r\n", b"SUB\ta\t1\r\nPUB  a   1\r\nx\r\n",
        b"RS+ a\r\n", b"HPUB a 13 12\r\nNATS/1.0\r\n\r\n\r\n", b"HPUB a 4 6\r\nabcdxx\r\n",
        b"HPUB a 12\r\nNATS/1.0\r\n\r\n\r\n", b"HPUB a b c 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"PUB a 1048577\r\n", b"HPUB a 12 1048577\r\n", b"SUB " + b"x" * 4096 + b" 1\r\n",
        b"SUB " + b"x" * 4094 + b" 1\r\n", b"SUB " + b"x" * 5000, b"PUB " + b"x" * 4200,
        b"PUB a 1\r\nx\n", b"SUB a 1 \r\nPUB a 1 \r\nx\r\n", b"PUB 1\r\n", b"+OK xx\r\n",
        b"PONG\r\nPONGxx\r\n", b"SUBa 1\r\n", b"PUBa 1\r\n",
        b"HPUB a r 18 19\r\n" + HEADER + b"x\r\nHPUB a 0 1\r\nx\r\n",
    ):  # fmt: skip
        yield repr(line[:40]), [("a", QUIET + b"SUB a 9\r\n" + PING), ("a", line + PING)]
    old = b'CONNECT {"verbose":false}\r\n'
    yield "headers unannounced", [("a", old + b"HPUB a 18 18\r\n" + HEADER + b"\r\n" + PING)]
    yield (
        "headers stripped",
        [
            ("a", old + b"SUB a 1\r\n" + PING),
            ("b", QUIET + b"SUB a 1\r\nHPUB a r 18 19\r\n" + HEADER + b"x\r\n" + PING),
        ],
    )


def subjects() -> Iterator[Script]:
    """Subjects of every shape, to subscribe and to publish to."""
    for subject in (
        b"a..b", b".a", b"a.", b"a.>.b", b"foo*", b">a", b"a.>", b"*.a.*", b">", b"a.*b",
        b"\xff\xfe", b"a\x00b", b".",
    ):  # fmt: skip
        yield f"SUB {subject!r}", [("a", VERBOSE + b"SUB %b 1\r\n" % subject + PING)]
    odd = (
        b"a..b", b".a", b"a.", b"a.*", b"*", b">", b"a.>", b"foo*", b"a\x00", b"\xff.\xfe", b".",
        b"..", b"$NRG.x", b"_GR_.x", b"$NRG", b"$NRGx", b"_GR_x", b"_R_.x", b"$SYS.x", b"$JSC.x",
        b'$NRG."q', b"$NRG.\xff\x01", b"a _R_.x", b"a $JS.ACK.x", b"a _GR_.x", b"a _R_x",
        b"a $JS.ACKx", b"a $NRG.x", b"a $JS.ACK",
    )  # fmt: skip
    for opening in (QUIET, PEDANTIC, b"CONNECT {}\r\n"):
        for subject in odd:
            start = opening + b"SUB > 1\r\nSUB a.* 2\r\nSUB * 3\r\n"
            yield f"PUB {subject!r} {opening[:25]!r}", [("a", start + pub(subject) + PING)]


def subscriptions() -> Iterator[Script]:
    """Counting, queues, echo, and answers from nobody."""
    yield (
        "UNSUB",
        [
            ("a", VERBOSE + b"UNSUB 5\r\nSUB a 1\r\nUNSUB 1 0\r\n" + pub(b"a")),
            (
                "a",
                b"SUB a 1\r\nUNSUB 1 x\r\n"
                + pub(b"a")
                + b"SUB a 1\r\nUNSUB 1 2\r\n"
                + pub(b"a") * 3,
            ),
            ("a", b"SUB a 2\r\n" + pub(b"a", b"a") + b"UNSUB 2 3\r\n" + pub(b"a", b"a")),
            ("a", b"SUB a 3\r\n" + pub(b"a") + b"UNSUB 3 1\r\n" + pub(b"a") + PING),
        ],
    )
    yield (
        "the same sid",
        [("a", VERBOSE + b"SUB a 1\r\nSUB b 1\r\nSUB b..c 1\r\n" + pub(b"a", b"b") + PING)],
    )
    yield (
        "queues",
        [
            ("a", VERBOSE + b"SUB a q 1\r\nSUB a r 3\r\nSUB a _sys_ 4\r\nSUB a * 5\r\n" + PING),
            ("b", QUIET + pub(b"a") + PING),
        ],
    )
    deaf = b'CONNECT {"verbose":false,"echo":false,"headers":true,"no_responders":true}\r\n'
    yield (
        "no echo",
        [
            ("a", deaf + b"SUB a 1\r\nSUB r 2\r\nSUB q g 3\r\n" + PING),
            ("b", QUIET + b"SUB q g 1\r\n" + PING),
            ("a", pub(b"a", b"a r", b"q", b"q", b"q") + PING),
            ("b", pub(b"a") + PING),
        ],
    )
    yield (
        "nobody",
        [
            ("a", QUIET + b"SUB r 1\r\n" + pub(b"a r") + b"UNSUB 1\r\nSUB r q 2\r\n" + pub(b"a r")),
            ("a", b"SUB s.* 3\r\nUNSUB 3 1\r\n" + pub(b"a s.1", b"a s.1", b"s.2", b"s.3") + PING),
        ],
    )
    yield (
        "nobody, verbose",
        [
            (
                "a",
                b'CONNECT {"headers":true,"no_responders":true}\r\nSUB r 1\r\n'
                + pub(b"a r")
                + PING,
            )
        ],
    )


def tokens() -> Iterator[Script]:
    """A server that wants a token."""
    for opening in (b"P", PING, b"SUB a 1\r\n", b"FOO\r\n", b"PUB a x\r\n", b"PUB", b"\r\n"):
        yield f"first {opening!r}", [("a", opening)]
    yield "endless CONNECT", [("a", b"CONNECT " + b"x" * 5000)]
    for options in (
        {"auth_token": "sekrit"}, {"pass": "sekrit"}, {"user": "sekrit"}, {},
        {"auth_token": "Sekrit"}, {"protocol": 3, "auth_token": "Sekrit"},
        {"no_responders": True, "auth_token": "Sekrit"}, {"protocol": 3, "auth_token": "sekrit"},
    ):  # fmt: skip
        yield f"{options}", [("a", b"CONNECT %b\r\n" % json.dumps(options).encode() + PING)]


def users() -> Iterator[Script]:
    """Accounts, their users, and what these may do."""
    for user, password in (
        ("all", "y"), ("nopass", ""), ("nopass", None), ("nopass", "zz"), ("zz", "x"), ("ct", "x"),
    ):  # fmt: skip
        yield f"login {user} {password}", [("a", login(user, password) + PING)]
    yield (
        "no_auth_user",
        [
            ("a", b'CONNECT {"verbose":false}\r\nSUB x 1\r\n' + PING),
            ("c", b"SUB x 1\r\n" + PING),
            ("b", login("b") + pub(b"x") + PING),
            ("d", login("all") + pub(b"x") + PING),
        ],
    )
    yield (
        "publish permissions",
        [("a", login("p1") + pub(b"foo.a", b"foo.secret", b"bar", b"baz", b"foo", b'a"b') + PING)],
    )
    yield (
        "publish permissions, verbose",
        [("a", login("p1", verbose=True) + pub(b"foo.a", b"foo.secret") + PING)],
    )
    yield (
        "subscribe permissions",
        [
            (
                "a",
                login("p1")
                + b"SUB sub.a 1\r\nSUB > 4\r\nSUB sub.deny 5\r\nSUB sub.x.y 6\r\n"
                + PING,
            ),
            ("a", b"SUB sub.x.> 7\r\nSUB sub.x.* 8\r\nSUB q1 9\r\nSUB q1 grp 10\r\n" + PING),
            (
                "a",
                b"SUB q1 other 11\r\nSUB q2 v1.a 12\r\nSUB q2 v2.a 13\r\nSUB sub.a q 14\r\n" + PING,
            ),
        ],
    )
    yield (
        "denied within a wildcard",
        [
            ("a", login("p1") + b"SUB sub.> 1\r\nSUB sub.*.* qq 2\r\n" + PING),
            ("b", login("all") + pub(b"sub.deny", b"sub.x.y", b"sub.ok", b"sub.o.k") + PING),
            ("b", b"SUB r 1\r\n" + pub(b"sub.deny r") + PING),
        ],
    )
    yield (
        "one answer",
        [
            ("a", login("p2") + b"SUB a.b 1\r\n" + pub(b"z") + PING),
            ("b", login("all") + b"SUB r.* 1\r\n" + pub(b"a.b r.1") + PING),
            ("a", pub(b"r.1", b"r.1") + PING),
            ("b", pub(b"a.b r.2") + PING),
            ("a", pub(b"r.2", b"r.1") + PING),
        ],
    )
    yield (
        "two answers",
        [
            ("a", login("p3") + b"SUB a 1\r\n" + pub(b"pp") + PING),
            ("b", login("all") + b"SUB r 1\r\n" + pub(b"a r") + PING),
            ("a", pub(b"r", b"r", b"r") + PING),
        ],
    )
    yield (
        "denied queues",
        [
            (
                "a",
                login("p4") + b"SUB dq 1\r\nSUB dq dd 2\r\nSUB dq ee 3\r\nSUB wide.* 4\r\n" + PING,
            ),
            ("b", login("all") + pub(b"wide.inner", b"wide.x", b"dq") + PING),
            ("a", pub(b"x") + PING),
        ],
    )
    many = b"".join(b"SUB s.%d %d\r\n" % (i, i) for i in range(6))
    yield "max_subs", [("a", login("all", verbose=True) + many + b"UNSUB 1\r\nSUB x 9\r\n" + PING)]
    yield "max_payload", [("a", login("all") + b"PUB a 100\r\n%b\r\nPUB a 101\r\n" % (b"x" * 100))]
    yield "max_conn", [(f"c{i}", login("all") + PING) for i in range(7)]
    yield (
        "change of account",
        [
            ("a", login("all") + b"SUB x 1\r\n" + PING),
            ("a", login("b") + b"SUB y 1\r\n" + PING),
            ("b", login("all") + pub(b"x", b"y") + PING),
            ("d", login("b") + pub(b"x", b"y") + PING),
            ("a", login("b", "wrong") + PING),
        ],
    )


def scripts_by_configuration() -> dict[str, list[Script]]:
    """Every script."""
    plain = [*openings(), *frames(), *subjects(), *subscriptions()]
    return {OPEN: plain, TOKEN: list(tokens()), ACCOUNTS: list(users())}
