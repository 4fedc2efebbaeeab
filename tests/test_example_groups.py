"""`examples/three_servers` and `two_servers`: groups for systemd and containers."""

import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import slipstream
from slipstream.server.config import load_text
from slipstream.server.flags import parse
from tests.lasting_ports import lasting_port
from tests.server.replica.serving import LOCAL, Publishers, Served, ServedGroup, followers, stored
from tests.server.replica.test_outside_registers import lost, until_current
from tests.systemd import is_well_formed, needs_systemd

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SERVERS = {"three_servers": ("n1", "n2", "n3"), "two_servers": ("n1", "n2")}
ASKED = {
    "three_servers": {"SERVER_NAME", "GROUP_PASSWORD"},
    "two_servers": {"SERVER_NAME", "GROUP_PASSWORD", "REGISTER_URL"},
}
EACH = [(example, name) for example, names in SERVERS.items() for name in names]
REGISTER = "nats://register:4222"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="examples/ is not beside the tests")


class Configured(Served):
    """A server that an example's file configures, with ports and a store of the test's own."""

    def __init__(
        self, example: str, name: str, directory: Path, routes: list[int], number: int,
        register_url: str = "",
    ) -> None:  # fmt: skip
        super().__init__(name, directory, routes, number)
        self._file = directory / f"{name}.conf"
        text = (EXAMPLES / example / "server.conf").read_text()
        for other, port in zip(SERVERS[example], routes, strict=True):
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
        self._file.write_text(text.replace("$REGISTER_URL", f'"{register_url}"'))

    @property
    def _words(self) -> list[str]:
        return ["serve", "-c", str(self._file), "-sd", str(self.directory)]


def configured(example: str, directory: Path, register_url: str = "") -> ServedGroup:
    group = ServedGroup(directory)
    names = SERVERS[example]
    routes = [lasting_port() for _ in names]
    group.servers = [
        Configured(example, name, directory, routes, number, register_url)
        for number, name in enumerate(names)
    ]
    return group


async def test_three_servers_with_its_configuration_survive_their_leader(tmp_path: Path) -> None:
    async with configured("three_servers", tmp_path) as group, group.client() as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=3)
        publishers = Publishers(nc, "s.a")
        await publishers.more(50)
        await (await group.leader()).end()
        await publishers.more(50)
        await publishers.stop()
        assert not lost(publishers, await stored(nc, "S"))


@pytest.fixture
async def register(tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a server of its own that has the bucket, as the example's third machine does."""
    with slipstream.Server(store_dir=str(tmp_path / "register")) as server:
        async with slipstream.connect(server.url) as nc:
            await nc.jetstream().create_key_value("groups")
        yield server.url


async def test_two_servers_with_its_configuration_survive_either_of_them(
    tmp_path: Path, register: str
) -> None:
    async with configured("two_servers", tmp_path, register) as group, group.client() as nc:
        await nc.jetstream().create_stream(name="S", subjects=["s.>"], num_replicas=2)
        publishers = Publishers(nc, "s.a")
        for _ in group.servers:
            await publishers.more(50)
            leader = await group.leader()
            await leader.end()
            await publishers.more(50)
            await leader.start()
            await until_current(nc, leader.name)
            assert await followers(nc, "S") == {leader.name: True}
        await publishers.stop()
        assert not lost(publishers, await stored(nc, "S"))


def compose(example: str) -> Any:
    return yaml.safe_load((EXAMPLES / example / "compose.yaml").read_text())


@pytest.mark.parametrize(("example", "name"), EACH)
def test_a_container_has_what_the_configuration_asks_for(example: str, name: str) -> None:
    service = compose(example)["services"][name]
    [mounted] = [one for one in service["volumes"] if one.startswith("./")]
    source, place, _ = mounted.split(":")
    line = parse(service["command"])
    assert (line.last("c"), line.last("sd")) == (place, "/data")
    assert f"{name}:/data" in service["volumes"]
    assert name in compose(example)["volumes"]
    given = service["environment"]
    assert given["GROUP_PASSWORD"].startswith("${GROUP_PASSWORD:?")  # compose stops without it
    environment = {**given, "GROUP_PASSWORD": "secret"}
    loaded = load_text((EXAMPLES / example / source).read_text(), source, environment)
    assert not loaded.warnings
    assert loaded.options.server_name == name
    cluster = loaded.options.cluster
    others = [one for one in SERVERS[example] if one != name]
    assert [route.host for route in cluster.others(name)] == others
    assert {port.split(":", 1)[1].split(":")[1] for port in service["ports"]} == {
        str(loaded.options.port),
        str(loaded.options.monitoring.http_port),
    }
    loaded.options.jetstream.enabled = True
    assert not cluster.faults(loaded.options)


def test_the_containers_of_two_servers_have_the_register_that_they_ask_for() -> None:
    services = compose("two_servers")["services"]
    for name in SERVERS["two_servers"]:
        assert services[name]["environment"]["REGISTER_URL"] == REGISTER
    assert parse(services["register"]["command"]).last("sd") == "/data"
    text = (EXAMPLES / "two_servers" / "server.conf").read_text()
    (bucket,) = re.findall(r"bucket: (\w+) }", text)
    assert services["bucket"]["command"] == ["kv", "add", bucket, "--server", REGISTER]


@pytest.mark.parametrize("example", SERVERS)
def test_the_unit_has_what_the_configuration_asks_for(example: str) -> None:
    place = EXAMPLES / example
    text = (place / "slipstream.service.d" / "group.conf").read_text()
    asked = set(re.findall(r"\$(\w+)", (place / "server.conf").read_text()))
    assert asked == ASKED[example]
    assert all(f"{name}=" in text for name in asked)


@needs_systemd
@pytest.mark.parametrize("example", SERVERS)
def test_systemd_finds_nothing_wrong_with_the_unit_of_a_group(tmp_path: Path, example: str) -> None:
    unit = (ROOT / "deploy" / "systemd" / "slipstream.service").read_text()
    path = tmp_path / "slipstream.service"
    path.write_text(unit.replace("/opt/slipstream/bin/slipstream", sys.executable))
    part = EXAMPLES / example / "slipstream.service.d"
    shutil.copytree(part, tmp_path / part.name)
    assert is_well_formed(path)
