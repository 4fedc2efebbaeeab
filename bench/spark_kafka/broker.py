"""One Kafka broker on loopback, in KRaft mode, with a data directory of its own."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from slipstream.server.replica.free_ports import free_ports

READY_WITHIN = 60.0  # seconds
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
MEMORY = "1g"  # as Kafka's own start script has it

# Two partitions, so that two tasks read them. All else is Kafka's default.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker:
    """A started broker; leaving the context ends it and removes what it has stored."""

    def __init__(self, jars: Path) -> None:
        self._classes = str(jars / "*")
        self._directory = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> "Broker":
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        properties = self._directory / "server.properties"
        properties.write_text(
            _PROPERTIES.format(port=port, controller=controller, directory=self._directory)
        )
        format_it = ["format", "-t", CLUSTER, "-c", str(properties)]
        log = (self._directory / "log").open("ab")
        subprocess.run(
            ["java", "-cp", self._classes, "kafka.tools.StorageTool", *format_it],
            stdout=log,
            stderr=log,
            check=True,
        )
        options = [f"-Xmx{MEMORY}", f"-Xms{MEMORY}", "-XX:+UseG1GC"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", self._classes, "kafka.Kafka", str(properties)],
            stdout=log,
            stderr=log,
        )
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_ready(self) -> None:
        """Return once the broker answers for its topics."""
        asked = ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address]
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline and self.process.poll() is None:
            done = subprocess.run(
                ["java", "-cp", self._classes, *asked, "--list"],
                capture_output=True,
                timeout=READY_WITHIN,
            )
            if done.returncode == 0:
                return
        raise RuntimeError(f"Kafka was not ready: {(self._directory / 'log').read_text()[-2000:]}")

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The broker's process."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        """The broker's process, by its id."""
        return self.process.pid

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # what it holds is thrown away
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
