"""The command line is Go's, and nats-server's."""

import pytest

from slipstream.errors import ConfigError
from slipstream.server.command import Program, load
from slipstream.server.flags import FlagError, parse, usage
from slipstream.server.options import ServerOptions


def options(*words: str) -> ServerOptions:
    found = ServerOptions()
    parse(words).apply(found)
    return found


@pytest.mark.parametrize(
    "words", [("-p", "4333"), ("--port", "4333"), ("-port=4333",), ("--p=0x10ed",), ("-p=0o10355",)]
)
def test_one_dash_or_two_a_word_or_an_equals_sign(words: tuple[str, ...]) -> None:
    assert options(*words).port == 4333


def test_a_switch_takes_a_value_only_after_an_equals_sign() -> None:
    line = parse(["-js=false", "-D", "false"])
    assert line.flags == [("js", False), ("D", True)]
    assert line.words == ["false"]


def test_the_last_of_two_flags_wins() -> None:
    assert options("-p", "1", "--port=2").port == 2
    assert parse(["-c", "a", "--config", "b"]).last("c", "config") == "b"


def test_flags_end_at_two_dashes_or_the_first_word() -> None:
    assert parse(["-D", "--", "-V"]).words == ["-V"]
    assert parse(["-D", "word", "-V"]).words == ["word", "-V"]
    assert parse(["-"]).words == ["-"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-foo"], "flag provided but not defined: -foo"),
        (["--foo=1"], "flag provided but not defined: -foo"),
        (["---p"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
        (["-p"], "flag needs an argument: -p"),
        (["--port", "abc"], 'invalid value "abc" for flag -port: parse error'),
        (["-p=99999999999999999999"], "for flag -p: value out of range"),
        (["-js=zz"], 'invalid boolean value "zz" for -js: parse error'),
    ],
)
def test_what_can_not_be_read_is_said_in_the_words_of_go(words: list[str], text: str) -> None:
    with pytest.raises(FlagError, match=text.replace("$", r"\$")):
        parse(words)


def test_each_flag_reaches_its_option() -> None:
    words = "-a h -p -1 -n N --client_advertise c:1 -P p.pid --ports_file_dir d -m -1 -ms 8"
    words += " -l f -T=false --logtime_utc -DVV --log_size_limit 9 --max_traced_msg_len 7"
    words += " -s -r udp://h:1 -js -sd s --user u --pass p"
    words += " --tls --tlscert a --tlskey b --tlscacert c --tlsverify"
    found = options(*words.split())
    assert (found.host, found.port, found.server_name) == ("h", -1, "N")
    assert (found.client_advertise, found.pid_file, found.ports_file_dir) == ("c:1", "p.pid", "d")
    assert (found.monitoring.http_port, found.monitoring.https_port) == (-1, 8)
    log = found.logging
    assert (log.log_file, log.logtime, log.logtime_utc) == ("f", False, True)
    assert (log.debug, log.trace, log.trace_verbose) == (True, True, True)
    assert (log.log_size_limit, log.max_traced_msg_len) == (9, 7)
    assert (log.syslog, log.remote_syslog) == (True, "udp://h:1")
    assert (found.jetstream.enabled, found.jetstream.store_dir) == (True, "s")
    assert (found.authorization.user, found.authorization.password) == ("u", "p")
    assert found.tls is not None
    assert (found.tls.cert_file, found.tls.key_file, found.tls.ca_file) == ("a", "b", "c")
    assert found.tls.verify
    assert options("--auth", "t").authorization.token == "t"


def test_port_0_is_the_usual_one() -> None:
    assert options("-p", "0").port == 4222


def test_the_flags_of_a_cluster_make_a_server_one_of_a_group() -> None:
    words = ["--cluster", "nats://u:p@10.9.0.1:6222", "--cluster_name", "C", "-js"]
    words += ["--routes", "nats://10.9.0.2:6222,nats://10.9.0.3:6222"]
    program = Program("slipstream-server", ServerOptions)
    found = load(program, parse([*words, "-n", "n1"]))[0].cluster
    assert (found.name, found.host, found.port) == ("C", "10.9.0.1", 6222)
    assert [route.address for route in found.routes] == ["10.9.0.2:6222", "10.9.0.3:6222"]
    with pytest.raises(ConfigError, match="server_name is missing"):
        load(program, parse(words))


def test_the_help_names_every_flag_of_this_server() -> None:
    text = usage("slipstream-server")
    for flag in ("-a,", "--server_name", "-sl,", "-DVV", "--tlscacert", "--help_tls"):
        assert flag in text
    assert max(len(line) for line in text.splitlines()) <= 100
