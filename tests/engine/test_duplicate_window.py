"""Which ids a window knows, also after a start; when it gives their memory back."""

import sys
from random import Random
from types import ModuleType

import pytest

from slipstream.engine.stream import dedupe
from slipstream.testing.driver import Driver
from slipstream.testing.simulated_disk import SimulatedDisk
from tests.plain_twin import plain_twin

BUILDS = [dedupe, plain_twin("slipstream.engine.stream.dedupe")]


class WindowModel:
    """A window as simple as can be: each id that came, with its time and its sequence."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, bytes, int]] = []
        self.seqs: dict[bytes, int] = {}

    def add(self, message_id: bytes, seq: int, now: int) -> None:
        self.arrivals.append((now, message_id, seq))
        self.seqs[message_id] = seq

    def expire(self, before: int) -> None:
        while self.arrivals and self.arrivals[0][0] <= before:
            _, message_id, seq = self.arrivals.pop(0)
            if self.seqs.get(message_id) == seq:
                del self.seqs[message_id]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_window_agrees_with_the_model(build: ModuleType, seed: int) -> None:
    random = Random(seed)
    window = build.DuplicateWindow(20)
    model = WindowModel()
    now = seq = 0
    for _ in range(250):
        for _ in range(random.choice((1, 1, 5, 300))):
            message_id = b"%d" % random.randrange(random.choice((10, 100_000)))
            assert window.find(message_id) == model.seqs.get(message_id, 0)
            came_now = (now, message_id) in [entry[:2] for entry in model.arrivals[-300:]]
            if not came_now:  # one that is known comes again in a log that was harmed
                seq += 1
                window.add(message_id, seq, now)
                model.add(message_id, seq, now)
        now += random.choice((0, 1, 1, 30))
        if random.random() < 0.1:
            window.window = random.choice((5, 20, 60))
        if random.random() < 0.5:
            again = window.expire(now)
            model.expire(now - window.window)
            assert again == (model.arrivals[0][0] + window.window if model.arrivals else 0)
            assert len(window) == len(model.seqs)


@pytest.mark.parametrize("build", BUILDS)
def test_forgotten_ids_leave_memory_soon(build: ModuleType) -> None:
    ids = [b"id %d" % n for n in range(60_000)]
    references = sys.getrefcount(ids[0])
    window = build.DuplicateWindow(10)
    for now, message_id in enumerate(ids):
        window.add(message_id, now + 1, now)
    window.expire(20_000)
    assert not window.find(ids[19_990])
    kept = sum(sys.getrefcount(ids[n]) > references for n in range(19_990))
    assert kept < 5_000, "they leave all at once, and no message is served meanwhile"


def test_damage_costs_the_id_of_its_own_message_alone() -> None:
    disk = SimulatedDisk(Random(1))
    driver = Driver(disk, segment_bytes=1_000).start()
    client = driver.client()
    client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    for n in range(1, 41):
        assert client.store("s", b"body %d." % n, Nats_Msg_Id=f"{n}")["seq"] == n
    path = disk.files(".seg")[1]
    first = int(path.split("/")[-1].split(".")[0])
    behind = int(disk.files(".seg")[2].split("/")[-1].split(".")[0])
    for seq in range(first + 1, behind):  # the segment is gone when the last one in it is lost
        client.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
    driver.stop()
    disk.flip(path, disk.read(path).index(b"body %d." % first) * 8)
    client = Driver(disk, now=driver.clock.now).start().client()
    for n in range(behind, 41):
        assert client.store("s", b"again", Nats_Msg_Id=f"{n}").get("duplicate"), n
    assert client.store("s", b"again", Nats_Msg_Id=f"{first}")["seq"] == 41
