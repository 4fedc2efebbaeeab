"""What the `nats` tool takes and this command refuses, each with the reason.

Hands and scripts that know the tool get a sentence that says what to use, never silence.
"""

from collections.abc import Sequence

NO_SOCKS_PROXY = "there is no SOCKS5 here; forward a port (`ssh -L`) and connect to that"
_ONE_LEADER = "that is about clusters of nats-servers; ask the nats tool"
_NO_ARCHIVE = "archives of `nats audit gather` are not read; ask the running server"
_FIXED_CHUNKS = "chunks have 512 KiB, or what the server allows, and 16 MiB are under way"
_FOR_PROGRAMS = "--once --json has the figures as they are, for programs"
_NO_EXPRESSION = "there is no expression language; filter what --json prints, for instance with jq"
_OF_PROTOCOL = (
    "schemas here are those of message bodies; the nats tool has the schemas of the API's messages"
)
_OF_DEVELOPERS = "the list of errors is nats-server's own and cannot be changed here"
_USE_KEY_FILES = "a context names files here; protect them, or keep the context without them"

# The first words of a line, and why there is no such command.
COMMANDS = {
    "audit": "it compares the servers of a cluster; `slipstream server check` has checks of one",
    "bench oldjs": "there is one client API here: `bench js`, `ordered`, `consume` and `fetch`",
    "consumer cluster balance": _ONE_LEADER,
    "errors edit": _OF_DEVELOPERS,
    "errors validate": _OF_DEVELOPERS,
    "governor": "a work queue stream with max_ack_pending on its consumer does the same",
    "plugins": "commands are not extended; write a program with the Python client",
    "schema info": _OF_PROTOCOL,
    "schema req": _OF_PROTOCOL,
    "schema request": _OF_PROTOCOL,
    "schema search": _OF_PROTOCOL,
    "schema show": _OF_PROTOCOL,
    "schema validate": _OF_PROTOCOL,
    "server check exporter": "the server itself has /metrics for Prometheus (`serve -m PORT`)",
    "server check raft": _ONE_LEADER,
    "server cluster balance": _ONE_LEADER,
    "server consumer-check": _ONE_LEADER,
    "server generate": "`slipstream serve` needs no configuration; deploy/ has ready ones",
    "server graph": "`slipstream server watch` and `slipstream top` show figures as they change",
    "server request profile": "profiles are of Go; docs/performance.md says how to profile here",
    "server report gateway": _ONE_LEADER,
    "server report gateways": _ONE_LEADER,
    "server report route": _ONE_LEADER,
    "server report routes": _ONE_LEADER,
    "server report super": _ONE_LEADER,
    "server run": "`slipstream serve` runs a server",
    "server stream-check": _ONE_LEADER,
    "stream cluster balance": _ONE_LEADER,
}
# The command ("": any), its options, and why they are refused.
OPTIONS = {
    "": {
        "--colors": "tables have no colours of their own; NO_COLOR turns off those of a terminal",
        "--socks-proxy": NO_SOCKS_PROXY,
    },
    "account tls": {"--ocsp": "no OCSP answer is asked for; --expire-warn checks the dates"},
    "bench js": {"--max-outstanding-acks": "a fast batch has up to two acks under way"},
    "consumer find": {"--expression": _NO_EXPRESSION},
    "consumer report": {"--leaders": _ONE_LEADER, "-l": _ONE_LEADER},
    "context add": {"--embed": _USE_KEY_FILES, "--nsc": _USE_KEY_FILES},
    "context copy": {"--embed": _USE_KEY_FILES, "--nsc": _USE_KEY_FILES},
    "context save": {"--embed": _USE_KEY_FILES, "--nsc": _USE_KEY_FILES},
    "errors": {"--errors": _OF_DEVELOPERS},
    "server account": {"--archive": _NO_ARCHIVE},
    "server report": {
        "--archive": _NO_ARCHIVE,
        "--filter": _NO_EXPRESSION,
        "--filter-name": _ONE_LEADER,
        "--leaders": _ONE_LEADER,
        "-l": _ONE_LEADER,
    },
    "server request": {"--archive": _NO_ARCHIVE, "--level": "profiles are of Go"},
    "stream backup": {"--chunk-size": _FIXED_CHUNKS, "--window-size": _FIXED_CHUNKS},
    "stream find": {"--expression": _NO_EXPRESSION},
    "top": {
        "--delimiter": _FOR_PROGRAMS,
        "--lookup": "addresses are shown as they are, without names",
        "--max-refresh": "--once prints one look; `slipstream server watch --count` several",
        "--raw": _FOR_PROGRAMS,
        "--subs": "`slipstream server request connections --subscriptions` lists them",
        "-b": _FOR_PROGRAMS,
        "-r": "--once prints one look; `slipstream server watch --count` several",
    },
    "stream report": {"--leaders": _ONE_LEADER, "-l": _ONE_LEADER},
}
_WORDS_MAX = max(len(words.split()) for words in COMMANDS)


def reason_against(words: Sequence[str]) -> str:
    """What is refused on this line and why; "" if nothing is. The words are as they are here."""
    said = list(words[: words.index("--")] if "--" in words else words)
    verbs = [word for word in said if not word.startswith("-")][:_WORDS_MAX]
    begun = [" ".join(verbs[:count]) for count in range(len(verbs), -1, -1)]
    for path in begun:
        if path in COMMANDS:
            return f"{path}: {COMMANDS[path]}"
    names = {word.partition("=")[0] for word in said if word.startswith("-")}
    for path in begun:
        for name in sorted(names & OPTIONS.get(path, {}).keys()):
            return f"{path} {name}: {OPTIONS[path][name]}".lstrip()
    return ""
