"""Every entry of the corpus gets the same answer from Slipstream and from nats-server.

What differs on purpose stands, with its reason, in the table of docs/compatibility.md; that table
is what this test reads, so the page cannot fall behind.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from slipstream.server import Server
from tests.compatibility import (
    batch_corpus,
    counter_corpus,
    level_corpus,
    mirror_corpus,
    request_corpus,
    schedule_corpus,
    story_corpus,
    stream_corpus,
)
from tests.compatibility.compare import Difference, differences, normalise, run_on_both
from tests.compatibility.corpus import Entry, whole_corpus
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW = re.compile(
    r"^\| `(?P<request>.+?)` \| `(?P<field>.+?)` \| `(?P<ours>.+?)` \| `(?P<theirs>.+?)` "
    r"\| (?P<reason>.+?) \|$",
    re.M,
)


def _name(entry: Entry) -> str:
    return f"{entry[0]} {entry[1]} {entry[2]!r:.80} {entry[3] or ''}".strip()


class Documented(NamedTuple):
    """A row of the page: in which field the answers to which requests differ, and how."""

    request: re.Pattern[str]
    field: str
    ours: re.Pattern[str]
    theirs: re.Pattern[str]

    def covers(self, entry: Entry, found: Difference) -> bool:
        """Whether a difference is the one that this row is about."""
        return bool(
            self.field == found.field
            and self.request.fullmatch(f"{entry[1]} {entry[2]!r}")
            and self.ours.fullmatch(str(found.ours))
            and self.theirs.fullmatch(str(found.theirs))
        )


def _documented() -> list[Documented]:
    def pattern(text: str) -> re.Pattern[str]:
        return re.compile(text.replace(r"\|", "|"), re.DOTALL)

    return [
        Documented(
            pattern(row["request"]), row["field"], pattern(row["ours"]), pattern(row["theirs"])
        )
        for row in ROW.finditer(PAGE.read_text())
    ]


PARTS: dict[str, Callable[[], Iterable[Entry]]] = {"corpus": whole_corpus} | {
    part.__name__: part
    for part in (
        *stream_corpus.PARTS,
        *request_corpus.PARTS,
        *story_corpus.PARTS,
        *level_corpus.PARTS,
        *batch_corpus.PARTS,
        *counter_corpus.PARTS,
        *schedule_corpus.PARTS,
        *mirror_corpus.PARTS,
    )
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", PARTS)
def test_every_request_and_publish_is_answered_as_nats_server_answers_it(
    part: str, jetstream_server: Server, nats_server: NatsServer
) -> None:
    documented = _documented()
    surprises: list[str] = []
    with RawClient(jetstream_server.port) as ours, RawClient(nats_server.port) as theirs:
        for entry in PARTS[part]():
            outcomes = run_on_both(entry, ours, theirs)
            surprises += [
                f"{_name(entry)} {found}"
                for found in differences(*outcomes)
                if not any(row.covers(entry, found) for row in documented)
            ]
            if entry[1].startswith("STREAM.DELETE.") and "success" in outcomes[1]:
                nats_server.remove_left_over(entry[1].removeprefix("STREAM.DELETE."))
    assert not surprises, "\n".join([f"{len(surprises)} differences:", *surprises])


def test_every_documented_difference_names_a_field_and_has_a_reason() -> None:
    rows = list(ROW.finditer(PAGE.read_text()))
    assert rows
    assert all(re.fullmatch(r"[\w.\[\]]+", row["field"]) for row in rows)
    assert all(len(row["reason"]) > 20 for row in rows)


def test_what_two_runs_do_not_share_hides_no_field_of_a_configuration() -> None:
    ours = normalise({"config": {"storage": "file"}, "storage": 5})
    theirs = normalise({"config": {"storage": "memory"}, "storage": 7})
    assert [found.field for found in differences(ours, theirs)] == ["config.storage"]


def test_a_row_is_about_its_field_alone() -> None:
    entry: Entry = ("api", "INFO", b"", None)
    found = [Difference("api.total", 2, 1), Difference("api.level", 2, 1)]
    assert [any(row.covers(entry, each) for row in _documented()) for each in found] == [
        True,
        False,
    ]
