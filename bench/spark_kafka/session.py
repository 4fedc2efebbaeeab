"""One side in a Spark session of its own, which is a process of its own; its figures are JSON.

What a process has measured goes to a file, since Spark says this and that on its way.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.spark_kafka import steady, works
from bench.spark_kafka.sides import FILLED, open_side

WITHIN = 3600.0  # seconds


def fill(name: str, address: str, messages: int) -> None:
    """Have the rows written that are read."""
    _run(name, address, "fill", {"messages": messages})


def measure(
    name: str, address: str, wanted: list[str], messages: int, seconds: float
) -> dict[str, float]:
    """The figures of one round, by name."""
    asked = {"works": wanted, "messages": messages, "seconds": seconds}
    found: dict[str, float] = _run(name, address, "measure", asked)
    return found


def run_steady(name: str, address: str, seconds: float, pid: int) -> list[steady.Sample]:
    """A steady load for so many seconds; `pid` is the server's process."""
    found = _run(name, address, "steady", {"seconds": seconds, "pid": pid})
    return [steady.Sample(*sample) for sample in found]


def _run(name: str, address: str, task: str, asked: dict[str, object]) -> Any:
    """What the process has found. Raises RuntimeError if it failed."""
    directory = Path(tempfile.mkdtemp(prefix="bench-session-"))
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "bench.spark_kafka.session"]
    command += [name, address, task, json.dumps(asked), str(directory / "found")]
    try:
        with (directory / "log").open("wb") as log:
            done = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                timeout=WITHIN,
                env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(directory)},
            )
        if done.returncode:
            said = (directory / "log").read_text()[-4000:]
            raise RuntimeError(f"{name}, {task}: {said}")
        return json.loads((directory / "found").read_text())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """What the process does."""
    name, address, task, asked, target = sys.argv[1:]
    options = json.loads(asked)
    spark, side = open_side(name, address)
    found: object = None
    try:
        if task == "fill":
            works.write_rows(spark, side, FILLED, options["messages"])
        elif task == "measure":
            found = works.measure(spark, side, **options)
        else:
            samples = steady.run(spark, side, name, address, **options)
            found = [[*sample] for sample in samples]
    finally:
        side.close()
        spark.stop()
    Path(target).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
