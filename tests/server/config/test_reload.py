"""A reload takes over all that is different, or nothing, in nats-server's words."""

import msgspec
import pytest

from slipstream.errors import ConfigError
from slipstream.server.config import changes, load_text, plan_reload
from slipstream.server.config.blocks import walk
from slipstream.server.config.directives import TOP
from slipstream.server.options import ServerOptions

JETSTREAM = "jetstream { store_dir: /tmp, max_mem: 1M, max_file: 1M }"


def options(text: str) -> ServerOptions:
    return load_text(text).options


@pytest.mark.parametrize(
    ("directive", "lines"),
    [
        ("debug: true", ["debug = true"]),
        ("trace_verbose: true", ["trace = true", "trace_verbose = true"]),
        ("max_payload: 2MB", ["max_payload = 2097152"]),
        ("max_connections: 10", ["max_connections = 10"]),
        ('ping_interval: "10s"', ["ping_interval = 10s"]),
        ('write_deadline: "5s"', ["write_deadline = 5s"]),
        ('client_advertise: "a:4"', ["client_advertise = a:4"]),
        ("server_tags: [a]", ["tags"]),
        ("server_metadata: {a: b}", ["metadata"]),
        (
            "authorization {user: a, password: b, timeout: 3}",
            ["authorization password", "authorization timeout = 3", "authorization username"],
        ),
        ("authorization {token: b}", ["authorization token"]),
        ("accounts {A {}}", ["accounts"]),
        ("mappings {a: b}", ["mappings"]),
    ],
)
def test_what_a_running_server_can_take_over(directive: str, lines: list[str]) -> None:
    plan = plan_reload(options("port: 4222"), options(f"port: 4222\n{directive}"))
    assert sorted(change.applied for change in plan) == [f"Reloaded: {line}" for line in lines]


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("server_name: new", "ServerName: old=, new=new"),
        ("max_subs: 10", "MaxSubs: old=0, new=10"),
        ("max_pending: 128MB", "MaxPending: old=67108864, new=134217728"),
        ("no_header_support: true", "NoHeaderSupport: old=false, new=true"),
        ('lame_duck_duration: "60s"', "LameDuckDuration: old=2m0s, new=1m0s"),
        ('lame_duck_grace_period: "5s"', "LameDuckGracePeriod: old=10s, new=5s"),
        ("max_closed_clients: 4", "MaxClosedClients: old=10000, new=4"),
        ("max_sub_tokens: 5", "MaxSubTokens: old=0, new=5"),
        ("no_system_account: true", "NoSystemAccount: old=false, new=true"),
        ("http_base_path: x", "HTTPBasePath: old=, new=/x"),
        ("host: localhost", "Host: old=0.0.0.0, new=localhost"),
        ("http_port: 8999", "HTTPPort: old=0, new=8999"),
    ],
)
def test_what_needs_a_restart_refuses_all_of_it(directive: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_reload(options("port: 4222"), options(f"port: 4222\ndebug: true\n{directive}"))
    assert str(raised.value) == f"config reload not supported for {text}"


def test_a_new_port_needs_a_restart() -> None:
    with pytest.raises(ConfigError, match="not supported for Port: old=4222, new=4333"):
        plan_reload(options("port: 4222"), options("port: 4333"))


def test_jetstream_may_grow_and_be_switched_but_not_shrink_or_move() -> None:
    running = options(JETSTREAM)
    bigger = options(JETSTREAM.replace("max_file: 1M", "max_file: 2M"))
    assert [change.option for change in plan_reload(running, bigger)] == [
        "jetstream.max_file_store"
    ]
    assert [c.applied for c in plan_reload(running, options("port: 4222"))] == [
        "Reloaded: JetStream"
    ]
    with pytest.raises(ConfigError, match=r"for decreasing jetstream max memory and store$"):
        plan_reload(bigger, running)
    with pytest.raises(ConfigError, match=r"for jetstream max memory and max store$"):
        plan_reload(running, options(JETSTREAM.replace("max_file: 1M", "max_file: -1")))
    with pytest.raises(ConfigError, match=r"for jetstream storage directory$"):
        plan_reload(running, options(JETSTREAM.replace("/tmp", "/var")))
    with pytest.raises(ConfigError, match=r"for JetStreamDomain: old=, new=a$"):
        plan_reload(running, options(JETSTREAM.replace("}", ", domain: a }")))


def test_the_same_configuration_changes_nothing() -> None:
    text = f"{JETSTREAM}\nauthorization {{ users: [{{user: a, password: b}}] }}\nping_max: 3"
    assert plan_reload(options(text), options("# moved\n" + text)) == []


def test_a_removed_key_goes_back_to_its_default() -> None:
    found = plan_reload(options("port: 4222\nping_max: 5"), options("port: 4222"))
    assert [(c.option, c.old, c.new) for c in found] == [("limits.ping_max", 5, 2)]


def test_what_contradicts_is_refused_before_anything_is_compared() -> None:
    with pytest.raises(ConfigError, match="no_auth_user"):
        plan_reload(options("port: 4222"), options("port: 4222\nno_auth_user: x"))


def test_every_option_can_be_set_by_some_directive() -> None:
    other = {int: 7, bool: None, str: "x", list: ["x"], dict: {"x": "y"}}
    known = {directive.option or path for path, directive in walk(TOP)}
    set_by_another = {
        "config_file",
        "config_digest",
        "monitoring.host",
        "jetstream.sync_always",
        "jetstream.enabled",
    }
    missing = []
    for group in ("", "limits", "logging", "monitoring", "jetstream"):
        struct = getattr(ServerOptions(), group) if group else ServerOptions()
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, msgspec.Struct) or type(value) not in other:
                continue
            path = f"{group}.{name}" if group else name
            if path not in known and path not in set_by_another:
                missing.append(path)
    assert not missing


def test_changes_lists_what_a_reload_could_not_take_over_too() -> None:
    found = changes(options("port: 4222"), options("port: 4333\ndebug: true"))
    assert {c.option: c.reloadable for c in found} == {"logging.debug": True, "port": False}
