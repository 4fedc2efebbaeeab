"""A Spark session that just works: the right interpreter in the workers, Arrow on, Java checked.

`session()` returns the active session if there is one and changes nothing about it but the data
source's registration. Otherwise it starts a local one. What it sets, any builder can set too;
docs/spark.md says what each setting is for. The checkpoints of a local master go through Hadoop's
FileSystem because its other way to rename starts a `readlink` process eight times for each file on
a local disk, half of what a small micro-batch costs. Its Python workers are reached over Unix
sockets because a task's input, which Spark writes in small pieces, comes tens of milliseconds late
over TCP. They import PySpark from where it is installed (`worker_python`), because Spark's own path
has an archive first, and Python compiles anew in each process what it imports from an archive.
"""

import importlib.util
import os
import re
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
_CONNECT_NEEDS = {
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "googleapis-common-protos": "google.rpc",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "zstandard": "zstandard",
}
REDACTED = "(?i)secret|password|token|access[.]?key|nkeyseed|jwt|servers"

_CONFIG = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.redaction.regex": REDACTED,
    "spark.sql.redaction.options.regex": REDACTED,
}
_LOCAL_CONFIG = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
}

WORKER_PYTHON = Path(__file__).with_name("worker_python")
_RUN_BY_IT = "SLIPSTREAM_WORKER_PYTHON"  # the variable that names the interpreter


def session(
    master: str = "local[*]",
    *,
    name: str = "slipstream",
    remote: str = "",
    config: dict[str, Any] | None = None,
) -> "SparkSession":
    """The active Spark session, or a new one, with the data source "jetstream" registered.

    `remote` is a Spark Connect URL (``sc://host:15002``), instead of `master`. `config` adds to or
    replaces what a new session is given. Raises `ConfigError` if Java, PySpark or what Spark
    Connect needs is missing, or if `remote` is asked for beside a session of this process.
    """
    found = _spark_session_class()
    active = found.getActiveSession()
    if active is not None:
        if remote and not _is_connected(active):
            raise ConfigError(
                f"the session {remote} was asked for, and this process has a Spark session of its "
                "own already: stop() that one first, or use another process"
            )
        register(active)
        return active
    builder = found.builder.appName(name)
    if remote:
        check_connect()
        builder = builder.remote(remote)
    else:
        check_java()
        python, settings = sys.executable, _CONFIG
        if master.startswith("local"):
            python = local_workers()
            os.environ[_RUN_BY_IT] = sys.executable
            settings = _CONFIG | _LOCAL_CONFIG | {f"spark.executorEnv.{_RUN_BY_IT}": sys.executable}
        os.environ.setdefault("PYSPARK_PYTHON", python)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
        builder = builder.master(master)
        for key, value in settings.items():
            builder = builder.config(key, value)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    register(made)
    return made


def register(spark: "SparkSession") -> None:
    """Make ``format("jetstream")`` known to a session, classic or Connect."""
    from slipstream.spark.datasource import JetStreamDataSource

    spark.dataSource.register(JetStreamDataSource)


def check_connect() -> None:
    """Raise `ConfigError` if a package that Spark Connect's client needs is missing."""
    missing = [package for package, module in _CONNECT_NEEDS.items() if not _is_there(module)]
    if missing:
        raise ConfigError(
            f"Spark Connect needs {', '.join(missing)}, not installed here: "
            "pip install 'slipstream[spark]'"
        )


def check_java() -> None:
    """Raise `ConfigError` if Java is missing or older than 17."""
    home = os.environ.get("JAVA_HOME", "")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java") or ""
    how = "install Java 17 or newer, or point JAVA_HOME at one (docs/spark.md says how)"
    if not java or not Path(java).exists():
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise ConfigError(f"Spark needs Java, and there is none {where}: {how}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if match is None or int(match[1]) < JAVA_VERSION_MIN:
        version = match[1] if match else "unknown"
        raise ConfigError(f"Spark needs Java 17 or newer, and {java} is version {version}: {how}")


def local_workers() -> str:
    """What runs the workers of a local session: `worker_python`, where it helps and can.

    It does where a bare interpreter finds the same PySpark and Py4J, which pip has installed.
    """
    packages = [Path(path) for path in site.getsitepackages()]
    installed = [_place(name) for name in ("pyspark", "py4j")]
    is_found = all(place is not None and place in packages for place in installed)
    can_run = os.name == "posix" and os.access(WORKER_PYTHON, os.X_OK)
    return str(WORKER_PYTHON) if is_found and can_run else sys.executable


def _place(package: str) -> Path | None:
    """The directory in which a package is installed; None if it is in an archive, or missing."""
    found = importlib.util.find_spec(package)
    origin = Path(found.origin) if found is not None and found.origin else None
    return origin.parent.parent if origin is not None and origin.exists() else None


def _spark_session_class() -> "type[SparkSession]":
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("PySpark is not installed: pip install 'slipstream[spark]'") from error
    return SparkSession


def _is_connected(session: "SparkSession") -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect.")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it is a part of is missing
        return False
