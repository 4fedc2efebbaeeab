"""An epoch that the register has for a successor, which then does not lead in it."""

import pytest

from slipstream.model.durations import MILLISECOND, SECOND

from .group_scripts import DirectedLife, _member


@pytest.mark.parametrize("seed", range(4))
def test_who_changes_members_after_that_has_another_server_lead_at_once(seed: int) -> None:
    def script(life: DirectedLife) -> None:
        first, successor, other = life.leader, life.middle, life.other
        leader = _member(first)
        leader.prepare_hand_over(life.now_of(first), successor.name)
        life._flush(first)
        life.wait(60 * MILLISECOND)
        life.crash(successor)
        life.wait(2 * SECOND)
        life.append(first)
        life.wait(50 * MILLISECOND)
        assert leader.committed == leader.log.end.index  # it goes on in its epoch
        leader.change_members(life.now_of(first), (first.name, other.name))
        life._flush(first)
        begin = life.now
        life.until(lambda: not leader.epoch, SECOND)
        life.until(lambda: bool(_member(other).epoch), SECOND)
        assert life.now - begin < 200 * MILLISECOND

    life = DirectedLife(seed, script)
    life.run(3)
    assert life.is_complete
