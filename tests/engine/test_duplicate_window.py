"""Which ids are known after a start, whatever has happened to the messages that carried them."""

from random import Random

from slipstream.testing.driver import Driver
from slipstream.testing.simulated_disk import SimulatedDisk


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
