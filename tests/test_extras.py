"""Extras: what is not installed is named, with the extra that brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import slipstream

ROOT = Path(__file__).parent.parent
PACKAGE = Path(slipstream.__file__).parent

_NAMED = re.compile(r'slipstream\[(\w+)\]|extra="(\w+)"')

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r} or name in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
{code}
"""


@pytest.mark.parametrize(
    ("extra", "packages", "code"),
    [
        ("spark", ["pyspark"], "import slipstream.spark; slipstream.spark.session()"),
        ("arrow", ["pyarrow"], "from slipstream.client.arrow.batches import arrow; arrow()"),
        (
            "objectstore",
            ["obstore"],
            "from slipstream.backups import open_place; open_place('s3://bucket/place')",
        ),
        ("tables", ["pyarrow"], "import slipstream.tables"),
        ("tables", ["pyiceberg"], "import slipstream.tables.iceberg"),
        ("delta", ["deltalake"], "import slipstream.tables.delta"),
        ("kombu", ["kombu"], "import slipstream.kombu"),
        (
            "otel",
            ["opentelemetry"],
            "from slipstream.client.telemetry import telemetry_for; telemetry_for(object())",
        ),
        *(
            (
                "otlp",
                [package],
                "from slipstream import Server\n"
                "from slipstream.server.options import TelemetryOptions\n"
                "Server(telemetry=TelemetryOptions(enabled=True)).start()",
            )
            for package in ("opentelemetry", "opentelemetry.exporter")
        ),
        (
            "schemas",
            ["fastavro"],
            "from slipstream.schemas import Avro; Avro(schema='\"int\"').arrow_type()",
        ),
        ("tables", ["pyiceberg_core"], "import slipstream.tables.iceberg"),
        (
            "console",
            ["starlette"],
            "from slipstream.cli.main import main; sys.exit(main(['console', '--no-context']))",
        ),
        (
            "console",
            ["uvicorn"],
            "from slipstream import Server\n"
            "from slipstream.server.options import ConsoleOptions\n"
            "Server(monitoring_port=0, console=ConsoleOptions(enabled=True)).start()",
        ),
        (
            "websocket",
            ["websockets"],
            "import asyncio, slipstream; asyncio.run(slipstream.connect('ws://127.0.0.1:1'))",
        ),
    ],
)
def test_a_program_that_misses_an_extra_is_told_its_name(
    extra: str, packages: list[str], code: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(packages=packages, code=code)],
        env={"PYTHONPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert f"slipstream[{extra}]" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="the project is not beside the tests")
def test_every_extra_that_is_named_is_there_and_all_has_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    texts = [path.read_text() for path in (ROOT / "src" / "slipstream").rglob("*.py")]
    named = {"".join(found) for text in texts for found in _NAMED.findall(text)}
    assert named
    assert named <= set(extras)
    (everything,) = extras["all"]
    assert set(re.split(r"[\[\],]", everything)[1:-1]) == named
