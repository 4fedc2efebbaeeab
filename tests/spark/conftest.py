"""One Spark session for the run, and a server of each kind for the tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slipstream
import slipstream.spark
from slipstream.server import Server
from tests.fix_nats_server import NatsServer
from tests.spark.mortal_servers import MortalServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has the session, another one may run what starts a Spark of its own meanwhile.

    On a busy machine Spark needs its time.
    """
    for item in items:
        if item.path.is_relative_to(HERE) and isinstance(item, pytest.Function):
            group = "spark" if "spark" in item.fixturenames else "spark-processes"
            item.add_marker(pytest.mark.xdist_group(group))
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A local session with two cores, in which a task may fail twice."""
    source = os.path.dirname(os.path.dirname(slipstream.__file__))
    os.environ["PYTHONPATH"] = source  # workers import the package under test
    os.environ.pop("PYSPARK_PYTHON", None)
    warehouse = tmp_path_factory.mktemp("warehouse")
    made = slipstream.spark.session(
        "local[2,3]",
        config={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(params=["slipstream", "nats-server"])
def either_url(
    request: pytest.FixtureRequest, jetstream_url: str, shared_nats_server: NatsServer
) -> str:
    """Where a server of each kind listens, one after the other."""
    return jetstream_url if request.param == "slipstream" else shared_nats_server.url


@pytest.fixture(params=["slipstream", "nats-server"])
def mortal_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MortalServer]:
    """A server process of each kind that a test may kill and revive."""
    server = MortalServer(request.param, tmp_path)
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose store a test may kill and reopen."""
    with Server(store_dir=str(tmp_path_factory.mktemp("own"))) as server:
        yield server
