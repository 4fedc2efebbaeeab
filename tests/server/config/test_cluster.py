"""The directives and flags of a group of servers: read, checked, and still refused as a whole."""

import socket
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.model.durations import MILLISECOND, SECOND
from slipstream.server.cluster_options import ClusterOptions, RouteOptions
from slipstream.server.config import load_text
from slipstream.server.config.cluster import CLUSTER, apply_flags
from slipstream.server.config.grammar import parse_text
from slipstream.server.config.kinds import Notes
from slipstream.server.flags import parse
from slipstream.server.options import JetStreamOptions, ServerOptions

SHARED = "authorization { user: r, password: s }"
THREE = "routes: [nats://10.9.0.1:6222, nats://10.9.0.2:6222, nats://10.9.0.3:6222]"
WHOLE = f"name: c, listen: 10.9.0.1:6222, {THREE}, {SHARED}"


def read(text: str) -> tuple[ClusterOptions, Notes]:
    found, notes = ClusterOptions(), Notes()
    CLUSTER.fill(parse_text(text, "test.conf", {}), found, notes)
    return found, notes


def cluster(text: str) -> ClusterOptions:
    found, notes = read(text)
    assert not notes.errors
    return found


def server(name: str = "n1", **more: object) -> ServerOptions:
    jetstream = JetStreamOptions(enabled=True)
    return ServerOptions(**{"server_name": name, "jetstream": jetstream, **more})  # type: ignore[arg-type]


def wrong(text: str, of: ServerOptions | None = None) -> list[str]:
    """What is wrong with a block that can be read."""
    return cluster(text).faults(of or server())


def test_a_block_says_who_forms_the_group() -> None:
    text = "name: c, host: 10.9.0.1, port: 6223, authorization { user: r, pass: s, timeout: 0.5 }"
    found = cluster(text + ", routes: ['nats://r:s@h:1', 'nats-route://[::1]:2', 'h3', 'tls://h4']")
    assert (found.name, found.host, found.port) == ("c", "10.9.0.1", 6223)
    assert found.timeout == 500 * MILLISECOND
    assert found.routes == [
        RouteOptions(host="h", port=1, user="r", password="s"),
        RouteOptions(host="::1", port=2),
        RouteOptions(host="h3", port=6222),
        RouteOptions(host="h4", port=6222),
    ]
    assert found.routes[1].address == "[::1]:2"


def test_listen_is_host_and_port_and_what_is_not_said_has_defaults() -> None:
    assert (cluster("listen: '1.2.3.4:5'").host, cluster("listen: '1.2.3.4:5'").port) == (
        "1.2.3.4",
        5,
    )
    found = cluster("port: 0")
    assert (found.host, found.port, found.timeout) == ("0.0.0.0", 6222, 2 * SECOND)


def test_what_servers_share_is_more_than_the_bytes_of_both_texts() -> None:
    one, other = (
        cluster(f"authorization {{ user: {user}, password: {password} }}").secret
        for user, password in (("ab", "c"), ("a", "bc"))
    )
    assert one != other
    assert not cluster("name: c").secret


def test_a_group_of_three_is_right_with_and_without_itself_among_the_routes() -> None:
    assert wrong(WHOLE) == []
    others = "routes: [nats://10.9.0.2:6222, nats://10.9.0.3:6222]"
    assert wrong(f"name: c, listen: 10.9.0.1:6222, {others}, {SHARED}") == []
    assert wrong(f"name: c, listen: 10.9.0.1:6222, {SHARED}") == []


@pytest.mark.parametrize(
    ("said", "own"),
    [
        ("listen: 10.9.0.1:6222", "10.9.0.1:6222"),
        ("port: 6222", f"{socket.gethostname()}:6222"),
        ("port: 6222", "localhost:6222"),
        ("port: 6222", "127.0.0.1:6222"),
        ("listen: 127.0.0.1:6222", "localhost:6222"),
        ("port: 6222", "n1.group.default.svc:6222"),
        ("port: 6222, advertise: 'example.org:7000'", "example.org:7000"),
    ],
)
def test_a_route_to_the_server_itself_is_known(said: str, own: str) -> None:
    found = cluster(f"{said}, routes: ['nats://{own}', 'nats://10.9.0.2:6222', 'nats://h:6223']")
    assert [route.host for route in found.others("n1")] == ["10.9.0.2", "h"]
    assert found.size("n1") == 3


@pytest.mark.parametrize(
    ("others", "why"), [(1, "an even number"), (3, "an even number"), (5, "6")]
)
def test_a_group_has_one_three_or_five_servers(others: int, why: str) -> None:
    routes = ", ".join(f"'nats://10.9.1.{number}'" for number in range(others))
    (line,) = wrong(f"name: c, listen: 10.9.0.1:6222, {SHARED}, routes: [{routes}]")
    assert f"are {others + 1} servers, and a group has 1, 3 or 5" in line
    assert why in line
    assert "set cluster.advertise" in line


BUCKET = "register { url: 'nats://h:4222, tls://h2', bucket: groups }"
TWO = "name: c, listen: 10.9.0.1:6222, routes: [nats://10.9.0.1:6222, nats://10.9.0.2:6222]"


@pytest.mark.parametrize("register", [BUCKET, "register { url: 's3://bucket/path' }"])
def test_two_servers_are_a_group_with_a_register_outside_of_it(register: str) -> None:
    assert not wrong(f"{TWO}, {SHARED}, {register}")
    assert not wrong(f"{WHOLE}, {register}")
    (line,) = wrong(f"{TWO}, {SHARED}")
    assert "two need a register outside of the group (cluster.register)" in line


@pytest.mark.parametrize(
    ("register", "why"),
    [
        ("bucket: b", "url is missing, or names no place"),
        ("url: '/a/directory'", "url is missing, or names no place"),
        ("url: 'file:///a/directory'", "10.9.0.1 may be another one, where it would be another"),
        ("url: 'nats://h'", 'bucket "" is not the name of a key-value bucket'),
        ("url: 'nats://h', bucket: 'a b'", 'bucket "a b" is not the name'),
        ("url: 'nats://h,h2', bucket: b", "url has something else than nats://host:4222"),
        ("url: 's3://b/p', bucket: b", "an object store's bucket is in its url"),
        (f"url: 's3://{'b' * 600}'", "more than 512 characters"),
    ],
)
def test_a_register_that_cannot_work_is_refused(register: str, why: str) -> None:
    (line,) = wrong(f"{WHOLE}, register {{ {register} }}")
    assert line.startswith("cluster: register: ")
    assert why in line


HERE = "listen: 127.0.0.1:6222, routes: [nats://localhost:6222, nats://127.0.0.1:6223]"


def test_two_servers_of_one_machine_may_have_it_in_a_file() -> None:
    assert not wrong(f"name: c, {HERE}, {SHARED}, register {{ url: 'file:///a/directory' }}")


@pytest.mark.parametrize(
    ("group", "register", "why"),
    [
        (f"name: c, {HERE}", "url: 'file://machine/a'", "names no directory of this machine"),
        (f"name: c, {HERE}", "url: 'file:///a', bucket: b", "a file needs none of them"),
        (f"name: '../c', {HERE}", "url: 'file:///a'", "cannot be the name of a file"),
        (
            f"name: c, {HERE.replace('localhost:6222', 'n2:6222')}",
            "url: 'file:///a'",
            "n2 may be another one, where it would be another file and both servers could lead",
        ),
    ],
)
def test_a_file_that_cannot_be_a_register_is_refused(group: str, register: str, why: str) -> None:
    lines = wrong(f"{group}, {SHARED}, register {{ {register} }}")
    assert any(line.startswith("cluster: register: ") and why in line for line in lines)


def test_a_group_whose_name_is_no_key_has_no_register_in_a_bucket() -> None:
    (line,) = wrong(f"{WHOLE.replace('name: c', 'name: c..d')}, {BUCKET}")
    assert 'the name "c..d" of the group cannot be a key' in line


def test_all_that_is_wrong_is_said_at_once_with_what_to_do() -> None:
    lines = wrong("port: -1, routes: ['nats://a:b@h']", ServerOptions())
    for text in (
        "server_name is missing",
        "name is missing: give all servers of the group the same one",
        "turn JetStream on",
        "port -1 is any free one",
        "are 2 servers",
        "the route h:6222 has another user and password than cluster.authorization",
        "the same authorization { user, password }, or tls",
    ):
        assert any(text in line for line in lines), text
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("text", "of", "why"),
    [
        (WHOLE, server(port=6222), "is the clients' port"),
        (WHOLE.replace("password: s", "timeout: 1"), server(), "a user and no password"),
        (WHOLE.replace("listen: 10.9.0.1:6222", "host: 10.9.0.1"), server(), "listen is missing"),
        (WHOLE, server("n" * 200), "server_name has more than 128"),
    ],
)
def test_what_cannot_work_is_refused(text: str, of: ServerOptions, why: str) -> None:
    assert any(why in line for line in wrong(text, of))


def test_tls_stands_for_a_secret_if_it_names_an_authority(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    files = f"cert_file: '{tmp_path}/cert', key_file: '{tmp_path}/key'"
    plain = f"name: c, listen: 10.9.0.1:6222, {THREE}"
    assert wrong(f"{plain}, tls {{ {files}, ca_file: '{tmp_path}/ca' }}") == []
    (line,) = wrong(f"{plain}, tls {{ {files} }}")
    assert "ca_file is missing" in line
    assert wrong(f"{plain}, {SHARED}, tls {{ {files} }}") == []
    (line,) = wrong(f"{plain}, {SHARED}, tls {{ cert_file: '{tmp_path}/cert' }}")
    assert "key_file is missing" in line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nope: 1", 'unknown field "nope"'),
        ("name: 'a b'", "cannot contain spaces"),
        ("routes: 'h'", "must be a list"),
        ("routes: ['http://h']", 'the scheme "http" of a route'),
        ("routes: ['nats://h:99999999']", "is not a route such as"),
        ("routes: ['nats://']", "is not a route such as"),
        ("authorization { users: [{user: a}] }", "share one user and password"),
        ("authorization { token: t }", "not supported yet"),
        ("permissions { import: a }", "not supported yet"),
        ("tls { nope: 1 }", 'unknown field "nope"'),
    ],
)
def test_what_cannot_be_read_is_an_error_with_its_place(text: str, why: str) -> None:
    _, notes = read(text)
    (line,) = notes.errors
    assert line.startswith("test.conf:1:")
    assert why in line


def test_a_route_that_is_wrong_does_not_show_its_password() -> None:
    _, notes = read("routes: ['nats://user:hidden@h:0']")
    assert "hidden" not in notes.errors[0]


def test_each_route_that_is_wrong_is_said() -> None:
    _, notes = read("routes: ['ws://a', 'nats://b', 'ws://c']")
    assert len(notes.errors) == 2


def test_what_makes_no_difference_here_is_read() -> None:
    text = "connect_backoff: true, connect_retries: 10, pool_size: 3, compression: s2_fast"
    assert cluster(f"{WHOLE}, {text}") == cluster(WHOLE)


def test_flags_override_the_block() -> None:
    found = cluster(WHOLE)
    words = ["--cluster", "nats://u:p@10.9.0.9:6300", "--cluster_name", "d"]
    words += ["--cluster_advertise", "a:1", "--routes", "nats://u:p@h1:1,nats://h2:2"]
    apply_flags(parse(words), found)
    assert (found.host, found.port, found.name, found.advertise) == ("10.9.0.9", 6300, "d", "a:1")
    assert (found.authorization.user, found.authorization.password) == ("u", "p")
    assert [route.address for route in found.routes] == ["h1:1", "h2:2"]
    with pytest.raises(ConfigError, match="-routes: the scheme"):
        apply_flags(parse(["--routes", "ws://h"]), found)


def test_a_block_of_a_file_makes_a_server_one_of_a_group() -> None:
    found = load_text(f"server_name: n1\njetstream: true\ncluster {{ {WHOLE} }}").options.cluster
    assert found == cluster(WHOLE)
    assert found.is_configured
    assert not load_text("cluster {}").options.cluster.is_configured
    with pytest.raises(ConfigError, match="cluster: server_name is missing"):
        load_text(f"jetstream: true\ncluster {{ {WHOLE} }}").options.validate()
