"""Placeholders in bodies and headers, as the `nats` tool has them.

``{{Count}}``, ``{{TimeStamp}}``, ``{{Unix}}``, ``{{UnixNano}}``, ``{{Time}}``, ``{{ID}}``,
``{{UUID}}``, ``{{Random min max}}`` (letters and digits), ``{{Request}}`` and, in answers,
``{{Header "Name"}}``.
"""

import random
import re
import string
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from slipstream.wire.nuid import Nuid

_PLACEHOLDER = re.compile(r"\{\{\s*\.?(\w+)((?:\s+[^}\s]+)*)\s*\}\}")


class Template:
    """A text whose placeholders are filled in anew for each message.

    Bytes that are not UTF-8 are surrogates in the text (`surrogateescape`, as in the arguments of
    a process) and are rendered as the bytes that they were.
    """

    def __init__(self, text: str, source: random.Random | None = None) -> None:
        self._text = text
        self._random = source or random.SystemRandom()
        self._nuid = Nuid(self._random)

    def render(
        self, count: int, request: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The text for message number `count`; unknown placeholders stay as they are."""
        if "{{" not in self._text:
            return self._text.encode("utf-8", "surrogateescape")
        now = datetime.now(UTC)
        known: dict[str, Callable[[list[str]], str]] = {
            "Count": lambda _: str(count),
            "TimeStamp": lambda _: now.astimezone().isoformat(timespec="seconds"),
            "Time": lambda _: now.astimezone().strftime("%I:%M%p"),
            "Unix": lambda _: str(int(now.timestamp())),
            "UnixNano": lambda _: str(time.time_ns()),
            "ID": lambda _: self._nuid.next(),
            "UUID": lambda _: str(uuid.uuid4()),
            "Random": self._letters,
            "Request": lambda _: request.decode("utf-8", "surrogateescape"),
            "Header": lambda words: (headers or {}).get(words[0].strip('"'), "") if words else "",
        }

        def fill(match: re.Match[str]) -> str:
            maker = known.get(match[1])
            return maker(match[2].split()) if maker else match[0]

        return _PLACEHOLDER.sub(fill, self._text).encode("utf-8", "surrogateescape")

    def _letters(self, words: list[str]) -> str:
        bounds = [int(word) for word in words if word.isdigit()] or [10]
        n = self._random.randint(bounds[0], bounds[-1]) if bounds[0] <= bounds[-1] else bounds[0]
        return "".join(self._random.choices(string.ascii_letters + string.digits, k=n))
