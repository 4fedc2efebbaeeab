"""Whether an attempt has gone can only be found out where inboxes are nobody else's."""

from pathlib import Path

import pytest

import slipstream.sync
from slipstream.errors import ConfigError
from slipstream.spark.sink import presence
from slipstream.spark.sink.presence import OverheardError
from tests.fix_nats_server import start_nats_server
from tests.fix_server_process import StartProcess
from tests.spark.mortal_servers import MortalServer
from tests.spark.test_bucket_sink import bucket_of
from tests.spark.test_bucket_sink import sink_of as bucket_sink
from tests.spark.test_exactly_once import killed, rows, run_tasks, sink_of, written
from tests.spark.test_sink import stream_of


def test_a_client_that_listens_to_everything_is_named_and_nothing_is_written_twice(
    mortal_server: MortalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_PROBE_SECONDS", 0.5)
    url = mortal_server.url
    name = stream_of(url)
    sink = sink_of(url, name)
    killed(sink, "first", rows(name, "a", "b"))
    with slipstream.sync.connect(url) as nc:
        nc.subscribe(">", handler=lambda _: None)
        nc.flush()
        with pytest.raises(OverheardError, match="subscribes to all subjects"):
            run_tasks(sink, "second", rows(name, "b", "c", "a"))
    run_tasks(sink, "third", rows(name, "b", "c", "a"))
    assert sorted(written(url, name)) == [b"a", b"b", b"c"]


def test_a_client_that_listens_to_everything_is_named_when_a_write_starts(
    mortal_server: MortalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_PROBE_SECONDS", 0.5)
    url = mortal_server.url
    name, bucket = stream_of(url), bucket_of(url)
    with slipstream.sync.connect(url) as nc:
        nc.subscribe("_INBOX.>", handler=lambda _: None)
        nc.flush()
        with pytest.raises(ConfigError, match="or to all inboxes"):
            sink_of(url, name)
        with pytest.raises(ConfigError, match="or to all inboxes"):
            bucket_sink(url, bucket)


@pytest.mark.parametrize("kind", ["slipstream", "nats-server"])
@pytest.mark.parametrize(
    "permissions",
    [
        'publish: ["T.>", "$JS.API.>", "_SLIPSTREAM_PROGRESS.>"]',
        'publish: ["T.>", "$JS.API.>", "_SLIPSTREAM_PROGRESS.>", "_INBOX.>"], '
        'subscribe: ["_INBOX.*.*"]',
    ],
)
def test_a_user_whose_inboxes_are_denied_is_refused_when_a_write_starts(
    start_server: StartProcess, tmp_path: Path, kind: str, permissions: str
) -> None:
    path = tmp_path / "server.conf"
    path.write_text(
        'authorization { users = [{user: "all", password: "p"}, '
        f'{{user: "spark", password: "p", permissions: {{ {permissions} }} }}] }}'
    )
    flags = "-c", str(path)
    if kind == "slipstream":
        server = start_server("-js", "-sd", str(tmp_path / "store"), *flags)
        url, process = server.url, server.process
    else:
        real = start_nats_server(tmp_path / "nats", *flags)
        url, process = real.url, real.process
    try:
        address = url.rpartition("//")[2].rpartition("@")[2]
        with slipstream.sync.connect(f"nats://all:p@{address}") as nc:
            nc.jetstream().create_stream(name="T", subjects=["T.>"])
        with pytest.raises(ConfigError, match=r"subscribe to _INBOX.> and publish to _INBOX.>"):
            sink_of(f"nats://{address}", "T", user="spark", password="p")
    finally:
        process.kill()
        process.wait()
