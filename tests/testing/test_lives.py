"""`python -m slipstream.testing` plays lives by their seeds, and shows what they violate."""

import pytest

from slipstream.testing import lives
from slipstream.testing.__main__ import main
from slipstream.testing.ledger import ViolationError
from slipstream.testing.lives import SERVERS, life_of_group, life_of_server
from slipstream.testing.simulation import Simulation


def test_lives_of_both_kinds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lives", "4", "--seed", "62", "--processes", "1"]) == 0
    servers, groups = capsys.readouterr().out.splitlines()
    assert servers.startswith("4 lives of servers: ")
    assert groups.startswith("4 lives of groups: ")
    assert "answers kept" in servers
    assert "calls answered" in groups
    assert all(line.endswith("; 0 violated something") for line in (servers, groups))


def test_a_violation_is_shown_with_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(life: Simulation, steps: int) -> Simulation:
        raise ViolationError(f"{life.seed} after {steps} steps")

    monkeypatch.setattr(Simulation, "run", run)
    seed = len(SERVERS) + 1
    shown = f"Simulation({seed}, damage=True).crashing(): {seed} after {lives.STEPS} steps"
    assert life_of_server(seed).violation == shown


def test_an_assertion_of_the_engine_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(life: Simulation, steps: int) -> Simulation:
        assert steps < 0, "the ack floor is above what was delivered"
        return life

    monkeypatch.setattr(Simulation, "run", run)
    violation = life_of_server(2).violation
    assert violation.startswith("Simulation(2, trouble=True): Traceback")
    assert "the ack floor is above" in violation


@pytest.mark.parametrize("life", [life_of_server, life_of_group])
def test_a_seed_gives_the_same_life(life: lives.Life) -> None:
    assert life(7).counts == life(7).counts
