"""Commands of the `nats` tool that have other words here."""

# The first words of a line, and what they are here; of several, the longest that fits counts.
SPELLINGS = {
    "backup account": "account backup",
    "backup restore account": "account restore",
    "backup restore stream": "stream restore",
    "backup stream": "stream backup",
    "bench js consume": "bench consume",
    "bench js fetch": "bench fetch",
    "bench js ordered": "bench ordered",
    "bench js pub": "bench js",
    "bench js pub async": "bench js",
    "bench js pub sync": "bench js --batch 1",
    "bench kv get": "bench kv --get",
    "bench kv put": "bench kv",
    "context -": "context previous",
    "context remove": "context rm",
    "context set": "context select",
    "context switch": "context select",
    "context v": "context info",
    "context vi": "context edit",
    "context view": "context info",
    "errors find": "errors lookup",
    "errors get": "errors lookup",
    "errors show": "errors lookup",
    "errors view": "errors lookup",
    "jwt d": "jwt decode",
    "jwt de": "jwt decode",
    "kv view": "kv info",
    "server check conn": "server check connection",
    "server check js": "server check jetstream",
    "server mkpasswd": "server passwd",
    "server pass": "server passwd",
    "server password": "server passwd",
}
_WORDS_MAX = max(len(words.split()) for words in SPELLINGS)


def respelt(words: list[str]) -> list[str]:
    """A command line of the `nats` tool in the words that commands have here."""
    for count in range(_WORDS_MAX, 0, -1):
        known = SPELLINGS.get(" ".join(words[:count]))
        if known is not None:
            return [*known.split(), *words[count:]]
    return words
