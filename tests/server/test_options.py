"""Options that cannot work are refused with words that help."""

from pathlib import Path

import pytest

from slipstream.engine.protocol.options import AccountJetStreamLimits
from slipstream.errors import ConfigError
from slipstream.model.durations import SECOND
from slipstream.server.engine_options import engine_options
from slipstream.server.options import (
    AccountOptions,
    AuthorizationOptions,
    JetStreamOptions,
    LimitsOptions,
    MonitoringOptions,
    ServerOptions,
    TlsOptions,
    UserOptions,
)

ALICE = UserOptions(user="alice", password="x")


def test_the_defaults_are_those_of_nats_and_valid() -> None:
    options = ServerOptions()
    options.validate()
    assert (options.host, options.port) == ("0.0.0.0", 4222)
    assert options.limits.max_payload == 1024 * 1024
    assert options.limits.ping_interval == 120 * SECOND
    assert options.auth_timeout == 2 * SECOND


def test_an_acknowledgement_means_on_disk_by_default() -> None:
    assert JetStreamOptions().sync_always


def test_only_a_configured_interval_puts_off_the_sync_of_a_relaxed_stream() -> None:
    assert engine_options(ServerOptions()).sync_interval == 0  # the engine takes a second
    relaxed = JetStreamOptions(sync_always=False, sync_interval=5 * SECOND)
    assert engine_options(ServerOptions(jetstream=relaxed)).sync_interval == 5 * SECOND


def test_tls_gives_clients_longer_to_authenticate() -> None:
    assert ServerOptions(tls=TlsOptions(timeout=5 * SECOND)).auth_timeout == 6 * SECOND


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ServerOptions(port=70_000), "port 70000 is not a port"),
        (ServerOptions(server_name="a b"), "has a space"),
        (ServerOptions(pid_file="/no/such/dir/pid"), "no directory"),
        (ServerOptions(no_auth_user="bob"), "not a configured user"),
        (ServerOptions(system_account="X"), "not configured"),
        (ServerOptions(accounts={"$G": AccountOptions(name="$G")}), "reserved account"),
        (ServerOptions(tls=TlsOptions(cert_file="cert.pem")), "key_file is missing"),
        (ServerOptions(allow_non_tls=True), "needs a tls block"),
        (ServerOptions(monitoring=MonitoringOptions(https_port=1)), "needs a certificate"),
        (ServerOptions(limits=LimitsOptions(max_pending_total=1)), "is below max_pending"),
        (ServerOptions(jetstream=JetStreamOptions(request_queue_limit=-1)), "0 is any number"),
        (ServerOptions(limits=LimitsOptions(max_payload=2, max_pending=1)), "above max_pending"),
        (ServerOptions(limits=LimitsOptions(lame_duck_duration=1)), "at least 30 seconds"),
        (ServerOptions(jetstream=JetStreamOptions(domain="a.b")), "one word"),
        (
            ServerOptions(authorization=AuthorizationOptions(user="a", token="t")),
            "user/pass and token",
        ),
        (
            ServerOptions(authorization=AuthorizationOptions(token="t", users=[ALICE])),
            "beside a list of users",
        ),
        (
            ServerOptions(
                authorization=AuthorizationOptions(users=[ALICE]),
                accounts={"A": AccountOptions(name="A", users=[ALICE])},
            ),
            'duplicate user "alice" in A and $G',
        ),
        (
            ServerOptions(
                system_account="S",
                accounts={"S": AccountOptions(name="S", jetstream=AccountJetStreamLimits())},
            ),
            "cannot have JetStream",
        ),
    ],
)
def test_what_can_not_work_is_refused(options: ServerOptions, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options.validate()
    assert text in str(caught.value)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    options = ServerOptions(port=-5, tls=TlsOptions(cert_file=str(tmp_path / "none"), key_file="k"))
    with pytest.raises(ConfigError) as caught:
        options.validate()
    assert len(str(caught.value).splitlines()) == 3
