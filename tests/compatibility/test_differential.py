"""Every entry of the corpus gets the same answer from Slipstream and from nats-server.

What differs on purpose stands, with its reason, in the table of docs/compatibility.md; that table
is what this test reads, so the page cannot fall behind.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

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
from tests.compatibility.compare import differences, run_on_both
from tests.compatibility.corpus import Entry, whole_corpus
from tests.compatibility.raw_client import RawClient
from tests.fix_nats_server import NatsServer

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW = re.compile(r"^\| `(?P<pattern>.+?)` \| (?P<reason>.+?) \|$", re.M)


def _name(entry: Entry) -> str:
    return f"{entry[0]} {entry[1]} {entry[2]!r:.80} {entry[3] or ''}".strip()


def _documented() -> list[re.Pattern[str]]:
    return [
        re.compile(match["pattern"].replace(r"\|", "|")) for match in ROW.finditer(PAGE.read_text())
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
    found: list[str] = []
    with RawClient(jetstream_server.port) as ours, RawClient(nats_server.port) as theirs:
        for entry in PARTS[part]():
            outcomes = run_on_both(entry, ours, theirs)
            found += differences(_name(entry), *outcomes)
            if entry[1].startswith("STREAM.DELETE.") and "success" in outcomes[1]:
                nats_server.remove_left_over(entry[1].removeprefix("STREAM.DELETE."))
    documented = _documented()
    surprises = [line for line in found if not any(p.search(line) for p in documented)]
    assert not surprises, "\n".join([f"{len(surprises)} differences:", *surprises])


def test_every_documented_difference_has_a_reason() -> None:
    assert all(len(match["reason"]) > 20 for match in ROW.finditer(PAGE.read_text()))
