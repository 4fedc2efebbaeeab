"""Runs Spark's own `spark-pipelines` with what a pipeline needs, and stops it when asked to.

The interpreter is this one, so that driver and workers find the data source; the server is in the
environment, where `jetstream_source` and `jetstream_sink` look. On this machine (no `--remote`, or
``local[...]``) the tables and their catalog are kept in the project: Spark's own catalog would be
forgotten at the end of the run, and the next one would stumble over the files.
"""

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from slipstream.cli.pipeline.project import Project
from slipstream.errors import ConfigError
from slipstream.spark import local_connect
from slipstream.spark.environment import to_environment

LOCAL = "local[*]"
_PIPELINES_CLASS = "org.apache.spark.deploy.SparkPipelines"
_TICK_SECONDS = 2.0


def command(project: Project, verb: str, remote: str, words: Sequence[str]) -> list[str]:
    """The words of the command line. Raises `ConfigError` if PySpark is missing."""
    executable = Path(home()) / "bin" / "spark-pipelines"
    if not executable.exists():
        raise ConfigError(
            f"{executable} is not there: pipelines need Spark 4.1 or newer "
            "(pip install 'slipstream[spark]', and no older SPARK_HOME)"
        )
    line = [str(executable)]
    if not remote.startswith("sc://"):
        # What the script `spark-pipelines` runs, with our way in to its Python part.
        module = Path(local_connect.__file__)
        line = [str(executable.parent / "spark-class"), _PIPELINES_CLASS, str(module)]
    return [*line, verb, "--spec", str(project.spec), "--remote", remote, *words]


def home() -> str:
    """Where Spark is: SPARK_HOME, or what PySpark brings. Raises `ConfigError` if it is missing."""
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ConfigError("PySpark is not installed: pip install 'slipstream[spark]'")
    return os.environ.get("SPARK_HOME") or found.submodule_search_locations[0]


def split_config(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of ``--conf``, and the words that are left."""
    config, rest = [], []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name not in ("--conf", "-c"):
            rest.append(word)
        elif equals:
            config.append(value)
        else:
            config += [next(left, "")]
    return config, rest


def _python_of_spark() -> list[str]:
    """Where SPARK_HOME has PySpark, as the script `spark-pipelines` has it in PYTHONPATH."""
    folder = Path(home()) / "python"
    return [str(folder), *(str(path) for path in sorted(folder.glob("lib/py4j-*-src.zip")))]


def _config(project: Project, remote: str) -> dict[str, str]:
    from slipstream.spark.session import REDACTED

    config = {"spark.redaction.regex": REDACTED, "spark.sql.redaction.options.regex": REDACTED}
    config["spark.connect.grpc.binding.port"] = "0"  # any free one: `local_connect` finds it
    if is_local(remote):
        state = project.state
        config |= {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": (state / "warehouse").as_uri(),
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={state / 'metastore'};create=true"
            ),
        }
    return config


def is_local(remote: str) -> bool:
    """Whether Spark runs in a process of its own on this machine."""
    return remote == "local" or remote.startswith("local[")


def check(remote: str, servers: str) -> None:
    """Raise `ConfigError` for what cannot work, before Java and Spark take their time to say so."""
    if is_local(remote):
        from slipstream.spark.session import check_java

        check_java()
    elif not remote.startswith("local") and not _is_here(remote) and _is_here(servers):
        raise ConfigError(
            f"the Spark at {remote} cannot reach the server at {servers}, which is on this "
            "machine: give --server with an address that the cluster reaches"
        )


def _is_here(urls: str) -> bool:
    hosts = {urlsplit(url if "//" in url else f"//{url}").hostname for url in urls.split(",")}
    return bool(hosts & {"127.0.0.1", "localhost", "::1"})


def environment(
    project: Project, options: dict[str, str], remote: str, config: Sequence[str]
) -> dict[str, str]:
    """The variables of the child; `config` are settings of Spark, as ``name=value``.

    Settings go to a Spark that we start by PYSPARK_SUBMIT_ARGS: of those that are given to
    `spark-pipelines` itself PySpark 4.3 takes over the last ten at most.
    """
    made = os.environ | to_environment(options)
    made.setdefault("PYSPARK_PYTHON", sys.executable)
    made.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    made["SPARK_HOME"] = home()
    made["PYTHONUNBUFFERED"] = "1"
    if not remote.startswith("sc://"):
        made["SPARK_API_MODE"] = "connect"  # takes any master in place of a Connect server
        made["PYTHONPATH"] = os.pathsep.join([*_python_of_spark(), made.get("PYTHONPATH", "")])
        settings = [f"{name}={value}" for name, value in _config(project, remote).items()]
        words = [word for setting in (*settings, *config) for word in ("--conf", setting)]
        made["PYSPARK_SUBMIT_ARGS"] = shlex.join([*words, "pyspark-shell"])
    if remote.startswith("local"):
        made.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return made


class Run:
    """One run of `spark-pipelines`: its lines as they come, its exit status at the end.

    `stop_timeout` is how many seconds `stop` gives a process to end by itself, for each signal.
    """

    def __init__(
        self, line: list[str], env: dict[str, str], folder: Path, *, stop_timeout: float = 15.0
    ) -> None:
        self._stop_timeout = stop_timeout
        self._process = subprocess.Popen(
            line,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours: the child is stopped in good order
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def lines(self, tick: Callable[[], Any]) -> Iterator[str]:
        """Each line, with its end; `tick` is called while none comes."""
        while True:
            try:
                line = self._lines.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                tick()
                continue
            if line is None:
                return
            yield line

    def wait(self) -> int:
        """The exit status."""
        return self._process.wait()

    def stop(self) -> None:
        """End the child and all that it has started; at once if asked a second time.

        A batch that is cut off is run again by the next run, with the same rows.
        """
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._signal(number)
                if self._has_ended():
                    return
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._has_ended()

    @property
    def is_running(self) -> bool:
        """Whether the child, or anything that it has started, is there."""
        return self._process.poll() is None or _has_living(self._process.pid)

    def _has_ended(self) -> bool:
        deadline = time.monotonic() + self._stop_timeout
        while self.is_running:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _signal(self, number: int) -> None:
        """To all that the child has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _has_living(group: int) -> bool:
    """Whether a process group has more than dead ones that nobody has waited for."""
    if not Path("/proc/self/stat").exists():
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has just ended
        if int(number) == group and state not in "ZX":
            return True
    return False


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
