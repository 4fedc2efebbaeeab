"""Commands of the `nats` tool that have other words here."""

# The first words of a line, and what they are here; of several, the longest that fits counts.
SPELLINGS = {
    "account rep": "account report",
    "backup account": "account backup",
    "backup restore account": "account restore",
    "backup restore stream": "stream restore",
    "backup stream": "stream backup",
    "bench js consume": "bench consume",
    "bench js fetch": "bench fetch",
    "bench js get": "bench get",
    "bench js get batch": "bench get",
    "bench js get sync": "bench get --batch 1",
    "bench js ordered": "bench ordered",
    "bench js pub": "bench js",
    "bench js pub async": "bench js",
    "bench js pub atomic": "bench js --mode atomic",
    "bench js pub batch": "bench js --mode atomic",
    "bench js pub fast": "bench js --mode fast",
    "bench js pub sync": "bench js --batch 1",
    "bench kv get": "bench kv --get",
    "bench kv put": "bench kv",
    "bench service request": "bench request",
    "bench service serve": "bench serve",
    "consumer c": "consumer cluster",
    "context -": "context previous",
    "context remove": "context rm",
    "context set": "context select",
    "context switch": "context select",
    "context v": "context info",
    "context vi": "context edit",
    "context view": "context info",
    "counter d": "counter decrement",
    "counter decr": "counter decrement",
    "counter g": "counter get",
    "counter i": "counter increment",
    "counter incr": "counter increment",
    "counter v": "counter view",
    "errors find": "errors lookup",
    "errors get": "errors lookup",
    "errors l": "errors lookup",
    "errors show": "errors lookup",
    "errors view": "errors lookup",
    "jwt d": "jwt decode",
    "jwt de": "jwt decode",
    "kv view": "kv info",
    "server check conn": "server check connection",
    "server check js": "server check jetstream",
    "server check req": "server check request",
    "server acct": "server account",
    "server mapping": "server mappings",
    "server mkpasswd": "server passwd",
    "server pass": "server passwd",
    "server password": "server passwd",
    "server r": "server cluster",
    "server raft": "server cluster",
    "server rep": "server report",
    "server req": "server request",
    "stream c": "stream cluster",
}
_CONSUMERS = {"--consumer": "--consumers"}
_WORDS_MAX = max(len(words.split()) for words in SPELLINGS)


def respelt(words: list[str]) -> list[str]:
    """A command line of the `nats` tool in the words that commands have here."""
    words = _verb_first(words)
    for count in range(_WORDS_MAX, 0, -1):
        known = SPELLINGS.get(" ".join(words[:count]))
        if known is not None:
            words = [*known.split(), *words[count:]]
            break
    if words[:2] == ["server", "request"] and words[2:3] and words[2].startswith("j"):
        # The nats tool has a flag of this name for `jetstream`, and an option for `health`.
        is_health = words[2] == "jetstream-health"
        return words if is_health else [_CONSUMERS.get(word, word) for word in words]
    return words


def _verb_first(words: list[str]) -> list[str]:
    """`stream --all ls` as `stream ls --all`. Where a stream is picked, all are offered anyway."""
    wants_all = False
    while words[:1] in (["stream"], ["consumer"]) and words[1:2] in (["-a"], ["--all"]):
        words, wants_all = [words[0], *words[2:]], True
    if wants_all and words[0] == "stream" and words[1:2] in (["ls"], ["list"], ["l"]):
        return [*words[:2], "--all", *words[2:]]
    if words[:2] == ["server", "check"]:
        return _after_the_check(words)
    return words


def _after_the_check(words: list[str]) -> list[str]:
    """`server check --format json stream` as `server check stream --format json`."""
    at = 2
    while at < len(words) and words[at].startswith(("--format", "--namespace", "--outfile")):
        at += 1 if "=" in words[at] else 2
    return [*words[:2], *words[at : at + 1], *words[2:at], *words[at + 1 :]]
