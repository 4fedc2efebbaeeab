"""The configuration: any text becomes options or a `ConfigError` that says where it is wrong."""

import io
from typing import Any

from fuzz.builds import Build
from fuzz.target import Finding, OneInput

# What `include` finds; nothing is read from this machine.
FILES = {
    "a.conf": b"port: 4333\n",
    "self.conf": b"include self.conf\n",
    "bad.conf": b"}\n",
    "binary.conf": b"\xff\xfe",
}
ENVIRONMENT = {"PORT": "4222", "MAP": "{a: 1}", "LOOP": "$LOOP", "EMPTY": ""}
DICTIONARY = [
    b"listen:", b"port:", b"include ", b"'a.conf'", b"self.conf", b"bad.conf", b"binary.conf",
    b"$PORT", b"$MAP", b"$LOOP", b"$EMPTY", b"jetstream {", b"accounts {", b"authorization {",
    b"users: [", b"{user: a, password: b}", b"permissions {", b"publish", b"subscribe", b"allow:",
    b"deny:", b"tls {", b"websocket {", b"leafnodes {", b"mappings = {", b"exports", b"imports",
    b"max_payload: 1MB", b"ping_interval: \"2m\"", b"no_auth_user: a", b"[", b"]", b"}", b"#",
    b"//", b"\n", b"(\n", b"\n)\n", b"\\x41", b"2026-01-01T00:00:00Z", b"1.5",
    b"9223372036854775808",
    b"max_mem:", b"store_dir:", b"sync:", b"limits", b"lame_duck_duration", b"weight: 50%",
]  # fmt: skip


def seeds() -> list[bytes]:
    """Files of every kind, right and wrong."""
    return [
        b'listen: "127.0.0.1:4333"\nmax_payload = 2MB\nping_interval "30s"\n',
        b'jetstream { store_dir: data, max_mem: "1M", sync: "5s" }\nhttp: 8222\n',
        b"accounts { A { jetstream: { max_streams: 2, max_file: 100k }\n limits: { max_conn: 5 }\n"
        b'users: [ { user: u, password: x, permissions: { publish: { allow: ["a.>", "b"], '
        b'deny: "a.c" }\n subscribe: "q grp", allow_responses: { max: 2, expires: "1m" }'
        b" } } ] } }\n"
        b"no_auth_user: u\nsystem_account: SYS\n",
        b"authorization { token: s3cr3t, timeout: 1.5 }\nmappings { a.*: b.$1, "
        b"x: [{destination: y, weight: 50%}] }\n",
        b"include a.conf\np = $PORT\nq: $MAP\nname: 'x\\y'\nblock (\n text\n)\n",
        b'tls { cert_file: "c.pem", key_file: "k.pem", verify: true }\nwebsocket { port: -1 }\n',
        b'{"port": 4222, "debug": true, "server_tags": ["a", "b"]}',
        b"leafnodes {}\ncluster { name: x }\n# comment\n// another\nport: x\n  max_paylod: 1\n",
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Load the text, and validate what it gave. The configuration has no compiled modules."""
    config = plain("slipstream.server.config")
    grammar: Any = plain("slipstream.server.config.grammar")
    refused = plain("slipstream.errors").ConfigError
    grammar.open = _open

    def one_input(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            loaded = config.load_text(text, "/etc/server.conf", ENVIRONMENT)
            again = config.load_text(text, "/etc/server.conf", ENVIRONMENT)
            if (loaded.options, loaded.warnings) != (again.options, again.warnings):
                raise Finding("the same text gave other options")
            loaded.options.validate()
        except refused as error:
            if not str(error):
                raise Finding("an error without a word") from error

    return one_input


def _open(path: str, mode: str) -> io.BytesIO:
    content = FILES.get(path.rpartition("/")[2])
    if content is None:
        raise FileNotFoundError(2, "No such file or directory", path)
    return io.BytesIO(content)
