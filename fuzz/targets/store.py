"""A server's whole store: whatever happened to its files, the server starts and the rest is there.

Two streams with consumers are written and stopped. The files of one of them are damaged, and the
server starts again in both builds: it answers for both streams, and the other one lost nothing.
"""

from random import Random
from typing import Any

from fuzz.builds import Build
from fuzz.target import Choices, Finding, OneInput, agree
from fuzz.targets.recovery import damaged

SECOND = 1_000_000_000
SEGMENT = 1_500
DICTIONARY = [b"SLIPMETA", b"SLIPSEG1", b"SLFT", b"\xa5\x01", b'{"', b'"name":"', b"\0" * 8]
MINE = "store/jetstream/$G/MINE/"


def seeds() -> list[bytes]:
    """One damage of every kind, to any of the files."""
    return [
        bytes([damage, file, 0, 30, 5, 0xFF, 1, 2, 3])
        for damage in range(7)
        for file in range(0, 16, 3)
    ]


def make(plain: Build, compiled: Build) -> OneInput:
    """Damage the files, and start a server of each build on them."""
    files = written(plain)
    mine = {path: content for path, content in files.items() if path.startswith(MINE)}
    others = {path: content for path, content in files.items() if path not in mine}

    def one_input(data: bytes) -> None:
        files = others | damaged(mine, Choices(data))
        agree("what a server says of its streams", started(plain, files), started(compiled, files))

    return one_input


def written(build: Build) -> dict[str, bytes]:
    """The files of a server that was stopped in order."""
    module = build("slipstream.testing.driver")
    with build.current():
        disk = build("slipstream.testing.simulated_disk").SimulatedDisk(Random(1))
        driver = module.Driver(disk, segment_bytes=SEGMENT).start()
        client = driver.client()
        for name, subject in (("MINE", "m"), ("OTHER", "o")):
            config: dict[str, Any] = {"name": name, "subjects": [f"{subject}.>"]}
            client.api(f"STREAM.CREATE.{name}", config)
            for number in range(30):
                client.store(f"{subject}.{number % 3}", b"x" * 40, Nats_Msg_Id=f"{number}")
            durable = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 5}
            asked = {"stream_name": name, "config": durable}
            client.api(f"CONSUMER.DURABLE.CREATE.{name}.C", asked)
            client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"3", "_INBOX.t.got")
            got = client.take()
            client.publish(got[0].reply, b"+ACK")
            client.api(f"STREAM.MSG.DELETE.{name}", {"seq": 7})
        driver.advance(2 * SECOND)
        driver.stop()
        return {path: disk.read(path) for path in disk.files()}


def started(build: Build, files: dict[str, bytes]) -> list[object]:
    """What a server says that finds these files."""
    module = build("slipstream.testing.driver")
    with build.current():
        disk = build("slipstream.testing.simulated_disk").SimulatedDisk(Random(1))
        for path, content in files.items():
            disk.makedirs(path.rpartition("/")[0])
            file = disk.open(path)
            file.append(content)
            file.sync()
            file.close()
        driver = module.Driver(disk, now=module.BEGIN + 100 * SECOND, segment_bytes=SEGMENT).start()
        client = driver.client()
        other = client.api("STREAM.INFO.OTHER")
        if other.get("state", {}).get("messages") != 29 or other["state"]["last_seq"] != 30:
            raise Finding(f"a stream whose files are whole is {other}")
        if client.store("o.1").get("seq") != 31:
            raise Finding("a stream whose files are whole stores nothing")
        told: list[object] = [client.api("STREAM.INFO.MINE"), client.api("CONSUMER.INFO.MINE.C")]
        for message in client.ask("m.1", b"y"):
            told.append(message.body)
        told += [client.api("CONSUMER.INFO.OTHER.C"), client.api("STREAM.NAMES")]
        driver.advance(60 * SECOND)
        driver.stop()
        return told
