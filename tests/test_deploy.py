"""The files in `deploy/`: the unit, the container, the manifests, and what they start."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import slipstream
from slipstream import NoRespondersError, Server, connect
from slipstream.client.jetstream.errors import StreamNotFoundError
from slipstream.server.config import load_text
from slipstream.server.flags import parse
from tests.lasting_ports import lasting_port
from tests.leaf.servers import until
from tests.systemd import is_well_formed, needs_systemd

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = DEPLOY / "systemd" / "slipstream.service"
DOCKERFILE = DEPLOY / "container" / "Dockerfile"
EXPOSURE_MAX = 2.0  # of 10, as systemd counts it

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="deploy/ is not beside the tests")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian: apt-get install prometheus)",
)


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "slipstream.yaml").read_text()))


def manifest(kind: str) -> dict[str, Any]:
    [found] = [item for item in manifests() if item["kind"] == kind]
    return found


# -- systemd -----------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit as it is installed where slipstream is this test's Python."""
    path = tmp_path / "slipstream.service"
    path.write_text(UNIT.read_text().replace("/opt/slipstream/bin/slipstream", sys.executable))
    return path


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    assert is_well_formed(unit)


@needs_systemd
def test_systemd_finds_the_unit_well_protected(unit: Path) -> None:
    found = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", found.stdout)
    assert level, found.stderr
    assert float(level[1]) <= EXPOSURE_MAX, found.stdout


def test_the_unit_starts_a_server_with_flags_that_exist() -> None:
    [command] = re.findall(r"^ExecStart=(\S+) serve (.+)$", UNIT.read_text(), re.M)
    line = parse(command[1].split())
    assert (line.last("sd"), line.last("c")) == (
        "/var/lib/slipstream",
        "/etc/slipstream/server.conf",
    )


# -- containers --------------------------------------------------------------------------------


def words(beginning: str) -> list[str]:
    """What follows on a line of the Dockerfile that begins so, as JSON."""
    [found] = re.findall(rf"^{beginning} (\[.+\])$", DOCKERFILE.read_text(), re.M)
    return list(json.loads(found))


def test_the_container_starts_a_server_with_flags_that_exist() -> None:
    assert words("ENTRYPOINT") == ["slipstream", "serve"]
    commands = [words("CMD"), compose("compose.yaml")["services"]["slipstream"]["command"]]
    assert {parse(command).last("sd") for command in commands} == {"/data"}
    assert {parse(command).last("m") for command in commands} == {8222}


def test_the_container_is_not_root() -> None:
    user = re.findall(r"^USER (\S+)$", DOCKERFILE.read_text(), re.M)[-1]
    assert user == "10001:10001"


def test_the_container_copies_what_there_is() -> None:
    root = DEPLOY.parent
    let_in = re.findall(r"^!(.+)$", (root / ".dockerignore").read_text(), re.M)
    for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE.read_text(), re.M):
        for source in line.replace("[t]", "t").split():
            assert source in let_in
            assert (root / source).exists() or "*" in source


def stages() -> dict[str, str]:
    """The stages of the Dockerfile by their names, the last one's is empty."""
    parts = re.split(r"^FROM \S+(?: AS (\w+))?$", DOCKERFILE.read_text(), flags=re.M)[1:]
    return {name or "": text for name, text in zip(parts[::2], parts[1::2], strict=True)}


def test_the_image_is_made_from_a_wheel_and_has_no_compiler() -> None:
    image = stages()[""]
    assert "from=wheel,source=/source/wheels,target=/wheels" in image
    assert re.search(r"pip install .*--only-binary :all: /wheels/slipstream-\*\.whl$", image, re.M)
    assert "COPY" not in image
    assert "apt-get" not in image


def a_wheel(directory: Path, version: str, tag: str) -> Path:
    """A wheel of that name with nothing in it."""
    directory.mkdir(exist_ok=True)
    path = directory / f"slipstream-{version}-{tag}.whl"
    inside = f"slipstream-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: slipstream\nVersion: {version}\n"
        )
        file.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        file.writestr(f"{inside}/RECORD", "")
    return path


def wheel_stage(where: Path) -> list[str]:
    """Runs the container's first stage in a directory; what it would have compiled with."""
    shutil.copy(DEPLOY.parent / "pyproject.toml", where)
    (where / "dist").mkdir(exist_ok=True)
    programs = where / "bin"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    called = shlex.quote(str(where / "called"))
    for name, body in (
        ("python", f'exec {python} "$@"'),
        ("apt-get", f'echo apt-get "$1" >> {called}'),
        (
            "pip",
            f'if [ "$1" = wheel ]; then echo pip wheel >> {called}; exit; fi\n'
            f'exec {python} -m pip "$@"',
        ),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    [command] = re.findall(r"^RUN ((?:.*\\\n)*.*)$", stages()["wheel"], re.M)
    subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=where,
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(where)},
        check=True,
        capture_output=True,
    )
    return (where / "called").read_text().splitlines() if (where / "called").exists() else []


def test_the_container_takes_the_wheel_that_is_there(tmp_path: Path) -> None:
    version = slipstream.__version__
    a_wheel(tmp_path / "dist", version, "cp38-cp38-manylinux_2_28_x86_64")
    fitting = a_wheel(tmp_path / "dist", version, "py3-none-any")
    assert wheel_stage(tmp_path) == []
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [fitting.name]


def test_the_container_compiles_where_no_wheel_fits(tmp_path: Path) -> None:
    a_wheel(tmp_path / "dist", slipstream.__version__, "cp38-cp38-manylinux_2_28_x86_64")
    a_wheel(tmp_path / "dist", "0.0.1", "py3-none-any")
    assert wheel_stage(tmp_path) == ["apt-get update", "apt-get install", "pip wheel"]


def test_the_health_check_is_a_program() -> None:
    python, flag, program = words("    CMD")
    assert (python, flag) == ("python", "-c")
    compile(program, "health check", "exec")


def compose(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "container" / name).read_text())


@pytest.mark.parametrize("name", ["compose.yaml", "three-servers.yaml"])
def test_a_compose_file_mounts_what_there_is(name: str) -> None:
    for service in compose(name)["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "container" / source).resolve().is_file(), source
            else:
                assert source in compose(name)["volumes"]


async def test_the_three_servers_of_a_compose_file_are_linked(tmp_path: Path) -> None:
    """Here, with ports that are free and stores of the test's own."""
    leaf_port = lasting_port()
    urls = {}
    async with AsyncExitStack() as servers:
        for name, service in compose("three-servers.yaml")["services"].items():
            [(mounted, place)] = [
                volume.removesuffix(":ro").split(":")
                for volume in service["volumes"]
                if volume.endswith(":ro")
            ]
            assert parse(service["command"]).last("c") == place
            text = (DEPLOY / "container" / mounted).read_text()
            for here, there in (
                ("/data", str(tmp_path / name)),
                ("//hub:7422", f"//127.0.0.1:{leaf_port}"),
                ("port: 7422", f"port: {leaf_port}"),
                ("port: 4222", "port: -1"),
                ("port: 8222", "port: -1"),
            ):
                text = text.replace(here, there)
            loaded = load_text(text, place, service.get("environment", {}))
            assert not loaded.warnings
            server = await servers.enter_async_context(Server(config=loaded.options))
            urls[name] = server.url
        assert list(urls) == ["hub", "east", "west"]
        async with (
            connect(urls["east"]) as east,
            connect(urls["west"]) as west,
        ):
            await east.jetstream().create_stream(name="ORDERS", subjects=["orders.>"])

            async def is_stored_at_east() -> bool:
                try:
                    await west.jetstream(domain="east").publish("orders.new", b"7")
                except NoRespondersError:
                    return False
                return True

            await until(is_stored_at_east, "the servers are not linked")
            with pytest.raises(StreamNotFoundError):
                await west.jetstream().stream_info("ORDERS")


@needs_promtool
def test_prometheus_finds_nothing_wrong_with_its_configuration() -> None:
    path = DEPLOY / "prometheus" / "prometheus.yml"
    subprocess.run(["promtool", "check", "config", str(path)], check=True, capture_output=True)


# -- Kubernetes --------------------------------------------------------------------------------


def test_the_manifests_fit_kubernetes_own_schema() -> None:
    import kubernetes_validate

    for item in manifests():
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)


def test_the_server_of_the_manifests_starts_with_a_configuration_that_it_understands() -> None:
    text = manifest("ConfigMap")["data"]["server.conf"]
    loaded = load_text(text, "server.conf", {"POD_NAME": "slipstream-0"})
    assert not loaded.warnings
    assert loaded.options.server_name == "slipstream-0"
    [container] = manifest("StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert parse(container["args"]).last("c") == "/etc/slipstream/server.conf"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert loaded.options.jetstream.store_dir in mounts
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "nats": loaded.options.port,
        "monitoring": loaded.options.monitoring.http_port,
    }
