"""What is kept of damage, and how often it is counted."""

from random import Random

from slipstream.log import damage
from slipstream.testing.simulated_disk import SimulatedDisk


def test_a_message_lost_where_a_torn_write_was_cut_off_is_kept_and_recalled_too() -> None:
    disk = SimulatedDisk(Random(1))
    assert damage.set_aside(disk, "log", 1, 32, b"torn")
    assert not damage.set_aside(disk, "log", 1, 32, b"torn")
    assert damage.set_aside(disk, "log", 1, 32, b"a whole message", 1, 1)
    assert not damage.set_aside(disk, "log", 1, 32, b"a whole message", 1, 1)
    lost = damage.recall(disk, "log")
    assert (lost.count, lost.bytes) == (1, len(b"torn" + b"a whole message"))


def test_damage_that_spreads_is_counted_once() -> None:
    disk = SimulatedDisk(Random(1))
    damage.set_aside(disk, "log", 1, 32, b"one", 1, 1)
    damage.set_aside(disk, "log", 1, 32, b"one and two", 1, 2)
    lost = damage.recall(disk, "log")
    assert lost.count == 2
    assert lost.sequences == [1, 2]
