"""The first hour, as docs/first-hour.md has it, from an empty folder; all but what is installed."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import slipstream
from tests.pages import ROOT

PAGE = ROOT / "docs" / "first-hour.md"
WAIT_SECONDS = 300

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not beside the tests")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass
class Newcomer:
    """Somebody who saves the page's programs and runs its commands, in a folder of their own."""

    folder: Path
    port: int
    text: str

    def run(self, command: str) -> str:
        """What a shell prints that runs `command`."""
        bin_folder = Path(sys.executable).parent
        env = os.environ | {
            "NATS_URL": f"nats://127.0.0.1:{self.port}",
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(slipstream.__file__).parents[1]),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }
        said = self.folder / "said"
        with said.open("w") as out:  # a pipe would stay open as long as the server runs
            done = subprocess.run(
                ["bash", "-e", "-c", command.replace("serve ", f"serve -p {self.port} ")],
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=WAIT_SECONDS,
                check=False,
            )
        assert done.returncode == 0, said.read_text()
        return said.read_text()

    def chapter(self, title: str) -> str:
        """The chapter of this title."""
        return re.split(r"^## ", self.text.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]

    def commands(self, title: str) -> str:
        """What the commands of a chapter print."""
        (block,) = re.findall(r"```sh\n(.*?)```", self.chapter(title), re.DOTALL)
        return self.run(block)

    def saves(self, title: str) -> None:
        """Save a chapter's program under the name that the chapter says."""
        chapter = self.chapter(title)
        (name,) = re.findall(r"Save this as `(.*?)`", chapter)
        (program,) = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
        (self.folder / name).write_text(program.replace("127.0.0.1:4222", f"127.0.0.1:{self.port}"))


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    person = Newcomer(tmp_path, free_port(), PAGE.read_text())
    yield person
    if (tmp_path / "server.pid").exists():
        person.run("kill -9 $(cat server.pid) 2> /dev/null || true")


@pytest.mark.timeout(WAIT_SECONDS)
def test_the_commands_of_the_first_hour_do_what_the_page_says(newcomer: Newcomer) -> None:
    newcomer.saves("Inside a program")
    assert newcomer.run("python embedded.py").endswith("stored as 1\norders.new b'Order #1001'\n")
    assert newcomer.run("python embedded.py").endswith("stored as 2\norders.new b'Order #1001'\n")
    said = newcomer.commands("On the command line")
    assert "Stream ORDERS was created" in said
    assert said.count("Acknowledged message") == 2
    assert "Nobody asks for messages at the moment" in said
    newcomer.saves("Kill it")
    said = newcomer.commands("Kill it")
    assert "acknowledged 2000" in said
    assert re.search(r"orders\.us\.new .*\b2,000\b", said)
    assert re.search(r"orders\.eu\.new .*\b1,000\b", said)
    said = newcomer.commands("Restore it")
    assert re.search(r"orders\.us\.new .*\b2,000\b", said)
    assert "str seq: 3" in said


@pytest.mark.xdist_group("spark-processes")
@pytest.mark.timeout(WAIT_SECONDS)
def test_the_spark_program_of_the_first_hour_reads_each_message_once(newcomer: Newcomer) -> None:
    newcomer.commands("On the command line")
    newcomer.saves("Spark")
    assert re.search(r"\| +1000\| +1000\| +12500\.0\|", newcomer.run("python totals.py"))
    newcomer.run('slipstream pub orders.eu.new \'{"number": 1, "total": 1}\' --count 100')
    assert re.search(r"\| +1100\| +1100\| +12600\.0\|", newcomer.run("python totals.py"))
