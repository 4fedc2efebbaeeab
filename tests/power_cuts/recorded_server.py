"""Starting the server with the recorder, and building that."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.fix_server_process import environment

READY_SECONDS_MAX = 60.0
SOURCE = Path(__file__).parent / "recorder.c"
ROOT = Path(__file__).parent.parent.parent  # where `tests` can be imported


def build_recorder(directory: Path) -> Path:
    """Compile the recorder; the library. Raises `subprocess.CalledProcessError`."""
    library = directory / "recorder.so"
    words = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*words, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return library


class Server:
    """`slipstream serve` on a store directory, which has to be there; `trace` records what it does.

    With `records` it ends as by kill -9 after that many records of the trace.
    """

    def __init__(
        self, store: Path, files: Path, library: Path | None = None, trace: Path | None = None,
        records: int = 0,
    ) -> None:  # fmt: skip
        self.url = self.monitoring_url = ""
        self._files = files
        files.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tests.power_cuts.small_server"]
        words += ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-sd", str(store)]
        words += ["--ports_file_dir", str(files)]
        more = {}
        if library is not None:
            more = {"LD_PRELOAD": str(library), "CUTS_ROOT": str(store), "CUTS_TRACE": str(trace)}
            if records:
                more["CUTS_KILL_AFTER"] = str(records)
        with (files / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, cwd=ROOT, env={**environment(), **more}
            )

    def wait_until_ready(self) -> bool:
        """Wait for its ports; False if it has ended instead. Raises `TimeoutError`."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            for path in self._files.glob(f"*_{self.process.pid}.ports"):
                try:
                    ports = json.loads(path.read_text())
                except ValueError:
                    continue  # being written
                self.url, self.monitoring_url = ports["nats"][0], ports["monitoring"][0]
                return True
            time.sleep(0.005)
        raise TimeoutError(f"the server was not ready in {READY_SECONDS_MAX} s: {self.log}")

    @property
    def log(self) -> str:
        """All that it has said."""
        return (self._files / "log").read_text(errors="replace")

    def health(self) -> list[str]:
        """What `/healthz` says is wrong."""
        url = f"{self.monitoring_url}/healthz?details=true"
        try:
            with urllib.request.urlopen(url, timeout=READY_SECONDS_MAX):
                return []
        except urllib.error.HTTPError as error:
            return [problem["error"] for problem in json.loads(error.read())["errors"]]

    def stop(self) -> None:
        """An orderly stop."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(READY_SECONDS_MAX)
