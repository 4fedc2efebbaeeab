"""Kafka's broker and Spark's connector for it, as Maven brings them; kept in `build/kafka`.

The connector is that of PySpark's version, or the newest that Maven Central has: a version of Spark
may be there before its connector is.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyspark

from bench.programs import BUILT

KAFKA = "3.9.1"
CONNECTORS = (pyspark.__version__, "4.2.0", "4.1.1")
_NOT_SPARKS_OWN = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)
_PLACE = BUILT / "kafka"


@dataclass(slots=True, frozen=True)
class Fetched:
    """Where the jars are, and which connector was found."""

    broker: Path
    connector: Path
    version: str


def fetch() -> Fetched:
    """Fetch what is missing; end with a clear message without Maven, or if it does not get it."""
    broker = _PLACE / f"broker-{KAFKA}"
    if not broker.exists():
        wanted = [("org.apache.kafka", name, KAFKA) for name in ("kafka_2.13", "kafka-tools")]
        failed = _copy(wanted, broker)
        if failed:
            sys.exit(f"Kafka {KAFKA} could not be fetched: {failed}")
    failed = ""
    for version in dict.fromkeys(CONNECTORS):
        jars = _PLACE / f"connector-{version}"
        name = "spark-sql-kafka-0-10_2.13"
        if not jars.exists():
            failed = _copy([("org.apache.spark", name, version)], jars, _NOT_SPARKS_OWN)
        if jars.exists():
            return Fetched(broker, jars, version)
    sys.exit(f"Kafka's connector for Spark could not be fetched: {failed}")


def _copy(wanted: list[tuple[str, str, str]], place: Path, only: tuple[str, ...] = ()) -> str:
    """Copy artifacts, and what they need, to a folder; what Maven said where that failed."""
    if not shutil.which("mvn"):
        return "Maven (mvn) is missing: install it from your distribution"
    _PLACE.mkdir(parents=True, exist_ok=True)
    pom = _PLACE / f"{place.name}.xml"
    pom.write_text(_pom(wanted))
    made = place.with_suffix(".part")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={made}"]
    if only:
        command.append(f"-DincludeArtifactIds={','.join(only)}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return next(iter(done.stdout.splitlines()), done.stderr)
    made.rename(place)
    return ""


def _pom(wanted: list[tuple[str, str, str]]) -> str:
    """A project that has nothing but what it depends on."""
    tags = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{tags}</dependencies></project>\n"
    )
