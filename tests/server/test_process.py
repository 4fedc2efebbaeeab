"""`slipstream-server` as a process: what it says, which files it keeps, what ends it."""

import gc
import json
import platform
import re
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream import __version__
from slipstream.engine.protocol.options import VERSION
from slipstream.server.command import Program, run
from slipstream.server.options import ServerOptions
from tests.fix_server_process import CLI, SERVER, StartProcess, run_to_end
from tests.server.plain_client import plain_client

LINE = re.compile(
    r"^\[(\d+)\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(TRC|DBG|INF|WRN|ERR|FTL)\] (.*)$"
)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line that starts no server, in this process: status, stdout, stderr."""

    def ran(*words: str) -> tuple[int, str, str]:
        status = run(Program("slipstream-server", ServerOptions), words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return ran


def test_start_and_end_are_told_in_the_order_that_scripts_look_for(
    start_server: StartProcess, tmp_path: Path
) -> None:
    server = start_server("-js", "-sd", str(tmp_path / "store"), "-n", "alpha", "-D")
    server.send(signal.SIGTERM)
    assert server.wait_for_end() == 0
    lines = server.log.splitlines()
    found = [LINE.match(line) for line in lines]
    assert all(found)
    texts = [match.group(3) for match in found if match]
    wanted = [
        r"Starting nats-server \(slipstream .*\)",
        rf"  Version:  {VERSION}",
        r"  Git:      \[.*\]",
        r"  Name:     alpha",
        r"  Node:     \w{8}",
        r"  ID:       N\w{55}",
        r"Starting JetStream",
        r"  Max Memory:      .* [MGT]B",
        r"  Max Storage:     .* [MGT]B",
        rf'  Store Directory: "{tmp_path}/store/jetstream"',
        r"Took .*s to start JetStream",
        r"Listening for client connections on 127\.0\.0\.1:\d+",
        r"Server is ready",
        r'Trapped "terminated" signal',
        r"Initiating Shutdown\.\.\.",
        r"Initiating JetStream Shutdown\.\.\.",
        r"JetStream Shutdown",
        r"Server Exiting\.\.",
    ]
    positions = [
        next(i for i, text in enumerate(texts) if re.fullmatch(pattern, text)) for pattern in wanted
    ]
    assert positions == sorted(positions)
    assert {int(match.group(1)) for match in found if match} == {server.process.pid}


def test_an_interrupt_ends_it_cleanly(start_server: StartProcess) -> None:
    server = start_server()
    server.send(signal.SIGINT)
    assert server.wait_for_end() == 0
    assert 'Trapped "interrupt" signal' in server.log


def test_the_ports_file_lives_as_long_as_the_server_and_the_pid_file_longer(
    start_server: StartProcess, tmp_path: Path
) -> None:
    pid_file = tmp_path / "server.pid"
    server = start_server("-P", str(pid_file))
    assert pid_file.read_text() == str(server.process.pid)
    ports = json.loads(server.ports_file.read_text())
    assert ports["nats"] == [f"nats://127.0.0.1:{server.port}"]
    server.send(signal.SIGINT)
    server.wait_for_end()
    assert not server.ports_file.exists()
    assert pid_file.exists()


def test_the_ports_file_lists_the_monitoring_port_too(start_server: StartProcess) -> None:
    server = start_server("-m", "-1")
    (url,) = json.loads(server.ports_file.read_text())["monitoring"]
    assert f"Starting http monitor on {url.removeprefix('http://')}\n" in server.log
    with urllib.request.urlopen(f"{url}/healthz") as answer:
        assert json.load(answer) == {"status": "ok"}


def test_on_all_addresses_the_ports_file_lists_each(start_server: StartProcess) -> None:
    server = start_server("-a", "0.0.0.0")
    urls = json.loads(server.ports_file.read_text())["nats"]
    assert "nats://127.0.0.1:" in urls[0]
    assert len(set(urls)) == len(urls)


def test_a_port_in_use_is_a_readable_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_to_end(*SERVER, "-a", "127.0.0.1", "-p", str(port))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert f'[FTL] Error listening on port: 127.0.0.1:{port}, "address already in use"' in last
    assert "choose another port" in last


def test_a_host_that_is_not_of_this_machine_is_a_readable_end() -> None:
    ended = run_to_end(*SERVER, "-a", "192.0.2.1", "-p", "-1")
    assert ended.returncode == 1
    assert '[FTL] Error listening on port: 192.0.2.1:-1, "' in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_store_that_can_not_be_made_is_a_readable_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run_to_end(*SERVER, "-p", "-1", "-js", "-sd", str(tmp_path / "file" / "store"))
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "[FTL] Can't start JetStream: could not create storage directory" in last
    assert "not a directory" in last


def test_a_store_has_one_server(start_server: StartProcess, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    start_server("-js", "-sd", store)
    ended = run_to_end(*SERVER, "-p", "-1", "-js", "-sd", store)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert "[FTL] Can't start JetStream: another server uses the store directory" in last


def test_certificates_that_can_not_be_used_are_a_readable_end(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("nothing")
    ended = run_to_end(*SERVER, "-p", "-1", "--tlscert", str(file), "--tlskey", str(file))
    assert ended.returncode == 1
    assert "error parsing X509 certificate/key pair" in ended.stderr
    status, _, err = command("-p", "-1", "--tls")
    assert status == 1
    assert "cert_file is missing" in err


@pytest.mark.parametrize("word", ["-v", "--version", "version"])
def test_the_version_is_printed_as_nats_server_does(command: Command, word: str) -> None:
    assert command(word) == (0, f"nats-server: v{VERSION}\n", "")


def test_the_help_goes_to_stdout_and_what_is_wrong_to_stderr(command: Command) -> None:
    for word in ("-h", "--help", "help"):
        status, out, err = command(word)
        assert (status, err) == (0, "")
        assert out.startswith("\nUsage: slipstream-server [options]\n")
    assert "cert_file" in command("--help_tls")[1]
    status, out, err = command("-foo")
    assert (status, err) == (0, "flag provided but not defined: -foo\n")
    assert out.startswith("\nUsage: ")


def test_a_stray_word_is_no_command(command: Command) -> None:
    assert command("extra") == (1, "", 'slipstream-server: unrecognized command: "extra"\n')


def test_t_checks_the_configuration_and_starts_nothing(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: -1\n")
    status, _, err = command("-t", "-c", str(path))
    assert status == 0
    valid = rf"slipstream-server: configuration file {path} is valid \(sha256:\w{{64}}\)\n"
    assert re.fullmatch(valid, err)
    path.write_text("port: -1\nfoo: 1\n")
    status, _, err = command("-t", "-c", str(path))
    assert status == 1
    assert f'{path}:2:1: unknown field "foo"' in err
    path.write_text("ping_interval: 5\n")  # a warning, which counts here
    assert command("-t", "-c", str(path))[0] == 1
    assert "must specify [-c, --config] option" in command("-t")[2]


def test_flags_override_the_configuration_file(start_server: StartProcess, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: 1\nserver_name: file\nmax_payload: 1000\n")
    server = start_server("-c", str(path), "-n", "flag")
    with plain_client(server.port) as client:
        info = client.info()
    assert info["server_name"] == "flag"
    assert info["max_payload"] == 1000
    assert f"Using configuration file: {path} (sha256:" in server.log


def test_signals_are_sent_by_pid_and_by_pid_file(
    start_server: StartProcess, command: Command, tmp_path: Path
) -> None:
    pid_file = tmp_path / "server.pid"
    server = start_server("-P", str(pid_file))
    assert command("--signal", f"reopen={pid_file}")[0] == 0
    server.wait_for('Trapped "user defined signal 1" signal')
    server.wait_for("File log re-open ignored, not a file logger")
    assert command(f"-sl=quit={server.process.pid}")[0] == 0
    assert server.wait_for_end() == 0
    other = start_server()
    assert command("--signal", f"stop={other.process.pid}")[0] == 0
    assert other.wait_for_end() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("signal_flag", "text"),
    [
        ("foo", 'unknown signal "foo": choose from stop, quit, term, reopen, reload, ldm'),
        ("quit=/nonexistent", "invalid pid: /nonexistent"),
        ("quit=x*", "invalid pid: x*"),
        ("quit=99999999", 'signal "quit" 99999999: no such process'),
    ],
)
def test_a_signal_that_can_not_be_sent_says_why(
    command: Command, signal_flag: str, text: str
) -> None:
    status, _, err = command("--signal", signal_flag)
    assert status == 1
    assert text in err


def test_slipstream_serve_has_jetstream_on_and_its_store_here(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run_to_end(*CLI, "serve", "-a", "127.0.0.1", "-p", port, directory=tmp_path)
    assert ended.returncode == 1  # the port is taken; by then JetStream is up
    assert 'Store Directory: "./slipstream-data/jetstream"' in ended.stderr
    assert (tmp_path / "slipstream-data" / "jetstream").is_dir()


def test_slipstream_says_what_it_is() -> None:
    ended = run_to_end(*CLI, "--version")
    assert re.fullmatch(
        rf"slipstream {re.escape(__version__)} \((compiled|plain)\)\n", ended.stdout
    )
    assert "serve" in run_to_end(*CLI, "--help").stdout
    assert run_to_end(*CLI).stdout == run_to_end(*CLI, "--help").stdout
    wrong = run_to_end(*CLI, "nonsense")
    assert wrong.returncode == 2
    assert 'there is no command "nonsense"' in wrong.stderr


def test_help_and_version_import_nothing_heavy() -> None:
    program = (
        "import sys; from slipstream.cli.main import main; main(['--help']); "
        "heavy = {'asyncio', 'uvloop', 'msgspec', 'ssl'} & set(sys.modules); sys.exit(len(heavy))"
    )
    assert run_to_end(SERVER[0], "-c", program).returncode == 0


def test_without_jetstream_nobody_answers_its_api(start_server: StartProcess) -> None:
    server = start_server()
    with plain_client(server.port) as client:
        assert "jetstream" not in client.info()
        client.send('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        client.send("SUB r 1\r\nPUB $JS.API.INFO r 0\r\n\r\n")
        assert client.line().startswith("HMSG r 1 ")
        assert client.line() == "NATS/1.0 503"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc does with freed memory")
def test_memory_of_large_messages_is_not_brought_anew_for_each() -> None:
    program = (
        "import resource\n"
        "from slipstream.server.process import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "def pages_brought_by_large_messages():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(100):\n"
        "        [bytes(200_000) for _ in range(5)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "pages_brought_by_large_messages()\n"
        "print(pages_brought_by_large_messages())\n"
    )
    ended = run_to_end(SERVER[0], "-c", program)
    assert int(ended.stdout) < 100


def test_a_server_that_cannot_start_leaves_the_garbage_collector_on(
    command: Command, tmp_path: Path
) -> None:
    taken = tmp_path / "store"
    taken.write_text("a file where the store directory is to be")
    status, _, _ = command("-p", "-1", "-js", "-sd", str(taken))
    assert status == 1
    assert gc.isenabled()
