"""How messages are shown one after the other: in words, raw, as JSON, in files, or counted."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from slipstream.cli.message.text import received_json, show_body, show_headers
from slipstream.cli.output import print_json, say, table
from slipstream.cli.prompts import Pager
from slipstream.cli.session import wants_json
from slipstream.cli.values import show_size
from slipstream.client.message import Message
from slipstream.wire.subjects import matches


class SubjectTally:
    """Counts messages by subject."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, message: Message, pattern: str = "") -> None:
        """Count a message under its subject, or the pattern that asked for it."""
        name = pattern or message.subject
        count, size = self._found.get(name, (0, 0))
        self._found[name] = (count + 1, size + len(message.data))

    def show(self) -> None:
        """The table, the busiest first."""
        found = sorted(self._found.items(), key=lambda one: (-one[1][0], one[0]))[: self._top]
        if wants_json():
            print_json({subject: {"messages": n, "bytes": size} for subject, (n, size) in found})
            return
        rows = [(subject, f"{n:,}", show_size(size)) for subject, (n, size) in found]
        title = f"Top {len(rows)} of {len(self._found)} active subjects"
        table(title, ("Subject", "Message Count", "Bytes"), rows)


class Shower:
    """Shows messages as the line asks, and counts them."""

    def __init__(
        self,
        *,
        raw: bool,
        headers_only: bool,
        subjects_only: bool,
        translate: str,
        count: int,
        pager: Pager,
        dump: str,
        tally: SubjectTally | None,
        by_pattern: bool,
        ignored: list[str],
        when: Callable[[], str] | None,
    ) -> None:
        self._pager = pager
        self._raw = raw
        self._headers_only = headers_only
        self._subjects_only = subjects_only
        self._translate = translate
        self._count = count
        self._dump = dump
        self._tally = tally
        self._by_pattern = by_pattern
        self._ignored = [pattern.encode() for pattern in ignored]
        self._when = when
        self.shown = 0
        if dump and dump != "-":
            Path(dump).mkdir(parents=True, exist_ok=True)

    def show(
        self, message: Message, origin: str = "", answer: Message | None = None, pattern: str = ""
    ) -> bool:
        """Show one, and the answer to it if there is one; False when that was the last.

        `pattern` is what was asked for.
        """
        subject = message.subject.encode()
        if any(matches(one, subject) for one in self._ignored):
            return True
        self.shown += 1
        if self._tally is not None:
            self._tally.add(message, pattern if self._by_pattern else "")
        elif self._dump:
            self._write(message, "")
            if answer is not None:
                self._write(answer, "_reply")
        elif wants_json():
            print_json(received_json(message))
            if answer is not None:
                print_json(received_json(answer))
        else:
            reply = f' with reply "{message.reply}"' if message.reply and not origin else ""
            self._print(f'Received {origin}on "{message.subject}"{reply}', message)
            if answer is not None:
                self._print(f'Matched reply on "{answer.subject}"', answer)
        return (not self._count or self.shown < self._count) and self._pager.wants_more()

    def end(self) -> None:
        """After the last: what was counted."""
        if self._tally is not None:
            self._tally.show()

    def _print(self, what: str, message: Message) -> None:
        if self._raw:
            show_body(message.data, self._translate)
            return
        when = f" @ {self._when()}" if self._when is not None else ""
        say(f"[#{self.shown}]{when} {what}")
        if not self._subjects_only:
            show_headers(message.headers)
            if not self._headers_only:
                show_body(message.data, self._translate)
            say()

    def _write(self, message: Message, mark: str) -> None:
        """In the format of the nats tool: `Subject`, `Reply`, `Header`, and `Data` in base64."""
        headers = {key: message.headers.get_all(key) for key in message.headers}
        found = {
            "Subject": message.subject,
            "Reply": message.reply or "",
            "Header": headers or None,
            "Data": base64.b64encode(message.data).decode(),
        }
        text = msgspec.json.encode(found)
        if self._dump == "-":
            sys.stdout.buffer.write(text + b"\0")
            sys.stdout.buffer.flush()
        else:
            Path(self._dump, f"{self.shown}{mark}.json").write_bytes(text)
