"""`examples/three_servers`: its configuration makes a group, under systemd and in containers."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipstream.server.config import load_text
from slipstream.server.flags import parse
from tests.lasting_ports import lasting_port
from tests.server.replica.serving import LOCAL, Publishers, Served, ServedGroup, stored
from tests.systemd import is_well_formed, needs_systemd

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "three_servers"
UNIT_PART = EXAMPLE / "slipstream.service.d" / "group.conf"
NAMES = ("n1", "n2", "n3")

pytestmark = pytest.mark.skipif(not EXAMPLE.exists(), reason="examples/ is not beside the tests")


class Configured(Served):
    """A server that the example's file configures, with ports and a store of the test's own."""

    def __init__(self, name: str, directory: Path, routes: list[int], number: int) -> None:
        super().__init__(name, directory, routes, number)
        self._file = directory / f"{name}.conf"
        text = (EXAMPLE / "server.conf").read_text()
        for other, port in zip(NAMES, routes, strict=True):
            text = text.replace(f"//{other}:6222", f"//{LOCAL}:{port}")
        for old, new in (
            ("$SERVER_NAME", name),
            ("$GROUP_PASSWORD", "secret"),
            ("port: 4222", f"port: {self.port}, host: {LOCAL}"),
            ("port: 6222", f"port: {routes[number]}, host: {LOCAL}"),
            ("http_port: 8222", f"http: {LOCAL}:-1"),
        ):
            assert old in text
            text = text.replace(old, new)
        self._file.write_text(text)

    @property
    def _words(self) -> list[str]:
        return ["serve", "-c", str(self._file), "-sd", str(self.directory)]


async def test_three_servers_with_its_configuration_survive_their_leader(tmp_path: Path) -> None:
    group = ServedGroup(tmp_path)
    routes = [lasting_port() for _ in NAMES]
    group.servers = [Configured(name, tmp_path, routes, n) for n, name in enumerate(NAMES)]
    async with group, group.client() as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=3)
        publishers = Publishers(nc, "s.a")
        await publishers.more(50)
        await (await group.leader()).end()
        await publishers.more(50)
        await publishers.stop()
        found = await stored(nc, "S")
        assert all(sequence in found[body] for body, sequence in publishers.acknowledged.items())


def compose() -> Any:
    return yaml.safe_load((EXAMPLE / "compose.yaml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_container_has_what_the_configuration_asks_for(name: str) -> None:
    service = compose()["services"][name]
    [mounted] = [one for one in service["volumes"] if one.startswith("./")]
    source, place, _ = mounted.split(":")
    line = parse(service["command"])
    assert (line.last("c"), line.last("sd")) == (place, "/data")
    assert f"{name}:/data" in service["volumes"]
    assert name in compose()["volumes"]
    given = service["environment"]
    assert given["GROUP_PASSWORD"].startswith("${GROUP_PASSWORD:?")  # compose stops without it
    environment = {**given, "GROUP_PASSWORD": "secret"}
    loaded = load_text((EXAMPLE / source).read_text(), source, environment)
    assert not loaded.warnings
    assert loaded.options.server_name == name
    cluster = loaded.options.cluster
    assert [route.host for route in cluster.others(name)] == [n for n in NAMES if n != name]
    assert {port.split(":", 1)[1].split(":")[1] for port in service["ports"]} == {
        str(loaded.options.port),
        str(loaded.options.monitoring.http_port),
    }


def test_the_unit_has_what_the_configuration_asks_for() -> None:
    text = UNIT_PART.read_text()
    asked = set(re.findall(r"\$(\w+)", (EXAMPLE / "server.conf").read_text()))
    assert asked == {"SERVER_NAME", "GROUP_PASSWORD"}
    assert all(f"{name}=" in text for name in asked)


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit_of_a_group(tmp_path: Path) -> None:
    unit = (ROOT / "deploy" / "systemd" / "slipstream.service").read_text()
    path = tmp_path / "slipstream.service"
    path.write_text(unit.replace("/opt/slipstream/bin/slipstream", sys.executable))
    shutil.copytree(UNIT_PART.parent, tmp_path / UNIT_PART.parent.name)
    assert is_well_formed(path)
