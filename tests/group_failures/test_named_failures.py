"""A short round for each failure that the issues of nats-server and Jepsen's report name.

`make group-failures` plays as many as one likes, with all kinds of faults.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.group_failures.checker import judge
from tests.group_failures.disks import flip_bits
from tests.group_failures.faults import (
    BitFlips,
    CrashAndPauses,
    DamagedSnapshots,
    Fault,
    Kills,
    Members,
    PowerOfAll,
)
from tests.group_failures.load import Attempt, Read
from tests.group_failures.network import why_not
from tests.group_failures.rounds import Round, play
from tests.group_failures.servers import build_clock
from tests.power_cuts.recorded_server import build_recorder

pytestmark = [pytest.mark.xdist_group("group_failures"), pytest.mark.timeout(600)]
SEED = 15


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("libraries")
    build_recorder(directory)
    build_clock(directory)
    return directory


def broken_after(
    faults: Sequence[type[Fault]], libraries: Path, directory: Path
) -> tuple[dict[str, int], list[str]]:
    one = Round(SEED, faults, warm=40, after=20)
    outcome = play(one, directory / "round", libraries)
    assert outcome.verdict.acknowledged >= 60, outcome.notes
    return outcome.verdict.counts, [*outcome.notes, *outcome.verdict.words]


def test_what_was_acknowledged_outlives_a_power_cut_of_all_servers_7564(
    libraries: Path, tmp_path: Path
) -> None:
    counts, words = broken_after([PowerOfAll], libraries, tmp_path)
    assert not counts, words


def test_bits_that_turn_over_on_a_minority_cost_nothing_7549(
    libraries: Path, tmp_path: Path
) -> None:
    counts, words = broken_after([BitFlips], libraries, tmp_path)
    assert not counts, words


def test_damaged_state_of_a_minority_takes_no_stream_away_7556(
    libraries: Path, tmp_path: Path
) -> None:
    counts, words = broken_after([DamagedSnapshots], libraries, tmp_path)
    assert not counts, words


def test_a_crash_and_pauses_split_no_group_7567(libraries: Path, tmp_path: Path) -> None:
    counts, words = broken_after([CrashAndPauses], libraries, tmp_path)
    assert not counts, words


def test_servers_that_come_and_go_amid_faults_lose_nothing_7545(
    libraries: Path, tmp_path: Path
) -> None:
    counts, words = broken_after([Members], libraries, tmp_path)
    assert not counts, words


def test_servers_that_are_killed_keep_their_stream_6888(libraries: Path, tmp_path: Path) -> None:
    counts, words = broken_after([Kills], libraries, tmp_path)
    assert not counts, words


class TestTheChecker:
    """It finds each of the promises broken, in histories that are made up."""

    def told(
        self,
        *attempts: tuple[bytes, float, float, int],
        reads: Sequence[Read] = (),
        **found: dict[int, bytes],
    ) -> dict[str, int]:
        done = [
            Attempt(body, has_id=True, began=began, ended=ended, sequence=sequence)
            for body, began, ended, sequence in attempts
        ]
        return judge(done, reads, found).counts

    def test_a_history_with_nothing_wrong_has_nothing_broken(self) -> None:
        whole = {1: b"a", 2: b"b"}
        found = self.told((b"a", 0, 1, 1), (b"b", 2, 3, 2), (b"c", 3, 0, 0), n1=whole, n2=whole)
        assert found == {}

    def test_a_message_that_one_server_lacks_is_lost(self) -> None:
        found = self.told((b"a", 0, 1, 1), n1={1: b"a"}, n2={})
        assert found == {"lost": 1, "history": 1}

    def test_a_message_that_is_stored_twice_is_found(self) -> None:
        assert self.told((b"a", 0, 1, 1), n1={1: b"a", 2: b"a"}) == {"twice": 1}

    def test_two_leaders_give_one_sequence_to_two_messages(self) -> None:
        found = self.told((b"a", 0, 1, 1), (b"b", 0, 1, 1), n1={1: b"a"})
        assert found == {"lost": 1, "same": 1}

    def test_an_acknowledgement_is_never_followed_by_an_earlier_sequence(self) -> None:
        found = self.told((b"a", 0, 1, 2), (b"b", 2, 3, 1), n1={1: b"b", 2: b"a"})
        assert found == {"order": 1}

    def test_a_read_that_does_not_know_what_was_acknowledged_is_stale(self) -> None:
        reads = [Read(began=2, ended=3, last=0, server="n1")]
        assert self.told((b"a", 0, 1, 1), reads=reads, n1={1: b"a"}) == {"stale": 1}

    def test_what_nobody_has_published_is_foreign(self) -> None:
        assert self.told((b"a", 0, 1, 1), n1={1: b"a", 2: b"x"}) == {"foreign": 1}


def test_flipped_bits_lie_in_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\1" * 10 + bytes(5000))
    assert flip_bits(path, Random(1), 1) == 1
    assert path.read_bytes()[:10] != b"\1" * 10
    assert path.read_bytes()[10:] == bytes(5000)
