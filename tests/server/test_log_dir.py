"""`jetstream { log_dir }`: a server whose commit log is on another disk than its store."""

from pathlib import Path

import pytest

import slipstream
from slipstream import Server
from slipstream.errors import ConfigError
from slipstream.server.options import JetStreamOptions
from slipstream.server.store_check import check_store
from tests.fix_server_process import StartProcess


def configured(directory: Path, log_dir: Path | None) -> str:
    """A configuration file with the store in `directory`."""
    named = f'log_dir: "{log_dir}"' if log_dir else ""
    path = directory / "server.conf"
    path.write_text(f'jetstream {{ store_dir: "{directory}/store", {named} }}')
    return str(path)


async def test_what_was_answered_is_there_wherever_the_log_was_and_is(
    start_server: StartProcess, tmp_path: Path
) -> None:
    made = 0
    for log_dir in (None, tmp_path / "fast", tmp_path / "other", tmp_path / "other", None):
        server = start_server("-c", configured(tmp_path, log_dir))
        async with await slipstream.connect(server.url) as connection:
            js = connection.jetstream()
            names = [name async for name in js.stream_names()]
            assert len(names) == made
            for name in names:
                info = await js.stream_info(name)
                assert (info.state.messages, info.state.consumer_count) == (1, 1)
            made += 1
            await js.create_stream(name=f"S{made}", subjects=[f"s{made}"])
            await js.publish(f"s{made}", b"x")
            await js.create_consumer(f"S{made}", durable_name="c")
        server.kill()
        if log_dir is not None:
            assert (log_dir / "commit-log" / "0.log").exists()
        with check_store(str(tmp_path / "store")) as checked:
            streams = checked.report.streams
            assert [len(stream.consumers) for stream in streams] == [1] * made
            assert checked.report.is_whole
    assert not (tmp_path / "other" / "commit-log" / "0.log").exists()


async def test_a_server_without_its_log_does_not_start(
    start_server: StartProcess, tmp_path: Path
) -> None:
    start_server("-c", configured(tmp_path, tmp_path / "fast")).kill()
    (tmp_path / "fast").rename(tmp_path / "unplugged")
    with pytest.raises(AssertionError, match="bring that disk or directory back"):
        start_server("-c", configured(tmp_path, tmp_path / "fast"))


@pytest.mark.parametrize("inside", ["jetstream", "jetstream/$G"])
def test_the_log_does_not_lie_among_the_streams(tmp_path: Path, inside: str) -> None:
    options = JetStreamOptions(
        enabled=True, store_dir=str(tmp_path), log_dir=str(tmp_path / inside)
    )
    with pytest.raises(ConfigError, match="lies among the streams"):
        Server(jetstream=options)


def test_a_temporary_store_has_no_log_elsewhere(tmp_path: Path) -> None:
    options = JetStreamOptions(enabled=True, log_dir=str(tmp_path))
    with pytest.raises(ConfigError, match="needs a store_dir"):
        Server(jetstream=options)
