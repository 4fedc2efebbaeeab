"""`slipstream pipeline`: the real executables, Spark's own engine, streams at both ends."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slipstream
from slipstream.cli.pipeline.output import explain, progress
from slipstream.cli.pipeline.project import find_project
from slipstream.cli.pipeline.spark import Run, check, split_config
from slipstream.cli.pipeline.template import write_project
from slipstream.errors import ConfigError
from slipstream.server import Server
from slipstream.spark.checkpoints import Reading, flows
from slipstream.spark.environment import from_environment, to_environment

SOURCE = Path(slipstream.__file__).parents[1]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `slipstream pipeline` in a folder, as somebody without a server or context would."""

    def run(*words: str, folder: Path = tmp_path) -> "subprocess.CompletedProcess[str]":
        env = {name: text for name, text in os.environ.items() if not name.startswith("NATS_")}
        env |= {"PYTHONPATH": str(SOURCE), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        env.pop("SPARK_TESTING", None)  # it would have Spark take any free port by itself
        return subprocess.run(
            [sys.executable, "-m", "slipstream.cli.main", "pipeline", *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=280,
        )

    return run


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Spark Connect's own port, which another process of this machine has."""
    try:
        with socket.create_server(("127.0.0.1", 15002)):
            yield 15002
    except OSError:
        yield 15002  # somebody has it indeed


@pytest.mark.timeout(600)  # Java and Spark start twice, on a machine that may be busy
def test_a_new_project_runs_and_runs_on_and_says_where_it_stands(
    cli: Cli, tmp_path: Path, taken_port: int
) -> None:
    made = cli("init", "shop")
    assert made.returncode == 0
    assert "cd shop && slipstream pipeline run" in made.stdout
    shop = tmp_path / "shop"

    idle = cli("status", folder=shop)
    assert "nothing has run yet" in idle.stdout, idle.stderr

    first = cli("run", "--master", "local[2]", "--json", folder=shop)
    assert first.returncode == 0, first.stderr
    assert "orders is done" in first.stderr
    assert "WARN" not in first.stderr
    status = json.loads(first.stdout)
    orders, large = sorted(status["flows"], key=lambda flow: flow["flow"] != "orders")
    assert [(r["stream"], r["next"], r["backlog"]) for r in orders["reads"]] == [("ORDERS", 7, 0)]
    assert large["writes"] == ["LARGE_ORDERS"]
    messages = {stream["name"]: stream["messages"] for stream in status["streams"]}
    assert messages == {"ORDERS": 6, "LARGE_ORDERS": 3}

    with Server(store_dir=str(shop / ".slipstream" / "store")) as server:
        assert asyncio.run(_large(server.url)) == [2, 4, 6]
        asyncio.run(_publish(server.url, {"id": 7, "customer": "ada", "amount": 512}))
        behind = cli("status", "--json", "--server", server.url, folder=shop)
        flow = next(f for f in json.loads(behind.stdout)["flows"] if f["flow"] == "orders")
        assert flow["reads"][0]["backlog"] == 1
        again = cli("run", "--master", "local[2]", "--server", server.url, folder=shop)
        assert again.returncode == 0, again.stderr
        assert "LARGE_ORDERS" in again.stdout
        assert asyncio.run(_large(server.url)) == [2, 4, 6, 7]


@pytest.mark.timeout(300)
def test_a_dry_run_finds_a_wrong_option_and_says_where(cli: Cli, tmp_path: Path) -> None:
    write_project(tmp_path / "shop")
    code = tmp_path / "shop" / "transformations" / "orders.py"
    text = code.read_text().replace('"LARGE_ORDERS"', '"LARGE_ORDERS", mod="exactly-once"')
    code.write_text(text)
    line = text[: text.index("mod=")].count("\n") + 1
    done = cli("dry-run", "--master", "local[2]", folder=tmp_path / "shop")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"transformations/orders.py:{line}: " in last
    assert "there is no option 'mod'; did you mean 'mode'?" in last


async def _publish(url: str, order: dict[str, object]) -> None:
    async with await slipstream.connect(url) as nc:
        await nc.jetstream().publish("orders.eu", json.dumps(order).encode())


async def _large(url: str) -> list[int]:
    """The ids of the large orders, in the order of the stream."""
    async with await slipstream.connect(url) as nc:
        stream = await nc.jetstream().stream("LARGE_ORDERS")
        found = []
        async for batch in stream.scan(columns=["subject", "data"]):
            for row in batch.to_pylist():
                if row["subject"].startswith("large."):
                    found.append(json.loads(row["data"])["id"])
        return sorted(found)


def test_init_leaves_a_folder_that_is_there_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    done = cli("init", "shop")
    assert done.returncode == 1
    assert "is there already" in done.stderr


def test_without_a_project_the_error_says_how_to_begin_one(cli: Cli) -> None:
    done = cli("status")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pipeline init" in done.stderr


def test_a_master_and_a_remote_contradict_each_other(cli: Cli, tmp_path: Path) -> None:
    write_project(tmp_path / "shop")
    done = cli("run", "--master", "local", "--remote", "sc://x", folder=tmp_path / "shop")
    assert done.returncode == 2
    assert "not both" in done.stderr


def test_a_cluster_is_not_sent_to_a_server_that_it_cannot_reach() -> None:
    with pytest.raises(ConfigError, match="cannot reach the server"):
        check("sc://spark.example:15002", "nats://127.0.0.1:4222")
    check("sc://spark.example:15002", "nats://nats.example:4222")


def test_a_specification_that_says_too_little_is_named(tmp_path: Path) -> None:
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: shop\n")
    with pytest.raises(ConfigError, match="has no storage"):
        find_project(spec)


def test_a_run_that_is_stopped_leaves_no_process_behind(tmp_path: Path) -> None:
    stubborn = "trap '' INT TERM; sleep 300"
    line = ["sh", "-c", f"sh -c \"{stubborn}\" & trap 'exit 0' INT; echo ready; wait"]
    run = Run(line, dict(os.environ), tmp_path, stop_timeout=0.2)
    assert next(run.lines(lambda: None)) == "ready\n"
    run.stop()
    assert not run.is_running


def test_settings_of_spark_are_told_from_other_options() -> None:
    words = ["--packages", "a:b:1", "--conf", "spark.x=1", "--conf=spark.y=2=3"]
    assert split_config(words) == (["spark.x=1", "spark.y=2=3"], ["--packages", "a:b:1"])


def test_positions_are_those_of_the_last_finished_batch_of_the_last_version(tmp_path: Path) -> None:
    base = tmp_path / "_checkpoints" / "spark_catalog" / "default" / "orders" / "orders"
    for version, batches in (("0", 9), ("1", 2)):
        folder = base / version
        (folder / "offsets").mkdir(parents=True)
        (folder / "commits").mkdir()
        (folder / "metadata").write_text(f'{{"id":"query-{version}"}}')
        for batch in range(batches):
            offset = {"ORDERS": {"next": batch * 10, "created": "2026-01-02T03:04:05Z"}}
            lines = ["v1", "{}", json.dumps(offset), '{"logOffset":0}', "-"]
            (folder / "offsets" / str(batch)).write_text("\n".join(lines))
            if batch < batches - 1:
                (folder / "commits" / str(batch)).write_text("v1\n{}")
    (flow,) = flows(tmp_path.as_uri())
    assert (flow.name, flow.dataset) == ("orders", "spark_catalog.default.orders")
    assert (flow.query_id, flow.version, flow.batches, flow.is_unfinished) == (
        "query-1",
        1,
        1,
        True,
    )
    assert flow.readings == [Reading("ORDERS", 0, "2026-01-02T03:04:05Z")]


def test_status_says_that_a_stream_is_another_one_or_not_there(cli: Cli, tmp_path: Path) -> None:
    write_project(tmp_path / "shop")
    storage = tmp_path / "shop" / ".slipstream" / "storage"
    offset = {name: {"next": 3, "created": "2020-01-02T03:04:05Z"} for name in ("ORDERS", "GONE")}
    for name, text in (("offsets/0", f"v1\n{{}}\n{json.dumps(offset)}"), ("commits/0", "v1\n{}")):
        path = storage / "_checkpoints" / "shop" / "copy" / "0" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    done = cli("status", folder=tmp_path / "shop")
    assert done.returncode == 0, done.stderr
    assert "copy, stream ORDERS: the stream was deleted and made again" in done.stdout
    assert "copy, stream GONE: the stream is not there" in done.stdout


def test_a_storage_where_nothing_has_run_has_no_flows(tmp_path: Path) -> None:
    assert flows((tmp_path / "storage").as_uri()) == []


def test_options_pass_through_the_environment_and_a_lone_user_is_a_token() -> None:
    options = {"servers": "nats://a:4222", "credentials": "/x.creds", "domain": "hub"}
    assert from_environment(to_environment(options)) == options
    assert from_environment({"NATS_USER": "secret"}) == {"token": "secret"}


def test_progress_is_what_flows_do_and_nothing_else() -> None:
    stamp = "2026-01-02 03:04:05: "
    assert progress(stamp + "Flow spark_catalog.default.orders has COMPLETED.") == (
        "03:04:05  orders is done"
    )
    assert progress(stamp + "Flow spark_catalog.default.orders is QUEUED.") == ""
    assert progress("26/01/02 03:04:05 WARN Utils: Your hostname") == ""


def test_an_error_is_its_innermost_message(tmp_path: Path) -> None:
    frame = f'  File "{tmp_path}/transformations/a.py", line 3, in orders'
    text = "pyspark.errors.exceptions.connect.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The "
    output = f"{frame}\n{text}table x cannot be found. SQLSTATE: 42P01\n"
    assert explain(output, tmp_path) == "transformations/a.py:3: The table x cannot be found."
    ours = "slipstream.client.jetstream.errors.StreamNotFoundError: stream ORDERS not found\n"
    assert explain(ours + output, tmp_path).endswith("stream ORDERS not found")
    missing = "slipstream.client.errors.StreamNotFoundError: STREAM.INFO.A: stream not found (404)"
    assert "slipstream stream add" in explain(missing, tmp_path)
