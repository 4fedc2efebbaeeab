"""A configuration file becomes options, or a list of what is wrong and where."""

from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.model.durations import MINUTE, SECOND
from slipstream.server.config import check_file, load_options, load_text
from slipstream.server.options import MIB, JetStreamOptions, ServerOptions


def write(directory: Path, text: str) -> str:
    path = directory / "server.conf"
    path.write_text(text)
    return str(path)


def test_directives_fill_the_options(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        listen: "127.0.0.1:4333"
        max_payload = 2MB
        ping_interval "30s"
        jetstream { store_dir: data, max_mem: "1M", sync: "5s" }
        """,
    )
    options = load_options(path)
    assert (options.host, options.port) == ("127.0.0.1", 4333)
    assert options.limits.max_payload == 2 * MIB
    assert options.limits.ping_interval == 30 * SECOND
    assert options.jetstream.enabled
    assert options.jetstream.max_memory_store == MIB
    assert (options.jetstream.sync_always, options.jetstream.sync_interval) == (False, 5 * SECOND)
    assert options.config_file == path
    assert options.config_digest.startswith("sha256:")


@pytest.mark.parametrize(
    ("said", "rate"),
    [("50MB", 50 * MIB), ('"50M"', 50 * MIB), ("off", 0), ('"off"', 0), ("false", 0)],
)
def test_the_scrub_reads_so_many_bytes_a_second_or_none(said: str, rate: int) -> None:
    assert load_text(f"jetstream {{ scrub: {said} }}", "a.conf").options.jetstream.scrub == rate


@pytest.mark.parametrize("wrong", ["0", "-1", "fast", "true"])
def test_a_rate_of_the_scrub_that_can_not_be_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="scrub"):
        load_text(f"jetstream {{ scrub: {wrong} }}", "a.conf")


def test_every_wrong_directive_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError) as raised:
        load_text("port: x\n  max_paylod: 1\njetstream { domain: 3 }", "a.conf")
    lines = str(raised.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["a.conf:1:1", "a.conf:2:3", "a.conf:3:13"]
    assert 'unknown field "max_paylod", did you mean "max_payload"?' in lines[1]


@pytest.mark.parametrize(("wrong", "meant"), [("prot", "port"), ("websockt", "websocket")])
def test_a_directive_that_has_an_effect_is_suggested_before_one_that_has_none(
    wrong: str, meant: str
) -> None:
    with pytest.raises(ConfigError, match=f'unknown field "{wrong}", did you mean "{meant}"'):
        load_text(f"{wrong}: 1", "a.conf")


def test_a_check_takes_warnings_for_errors(tmp_path: Path) -> None:
    path = write(tmp_path, "write_deadline: 5")
    assert load_options(path).limits.write_deadline == 5 * SECOND
    with pytest.raises(ConfigError, match="should be converted to a duration"):
        check_file(path)


def test_a_check_finds_what_contradicts(tmp_path: Path) -> None:
    path = write(tmp_path, "no_auth_user: nobody")
    with pytest.raises(ConfigError, match='no_auth_user "nobody"'):
        check_file(path)


def test_bare_minutes_are_minutes_and_get_a_warning() -> None:
    loaded = load_text("ping_interval: 2m")
    assert loaded.options.limits.ping_interval == 2 * MINUTE
    assert "quote it" in loaded.warnings[0]


def test_a_file_names_its_store_once_and_before_any_default() -> None:
    default = ServerOptions(jetstream=JetStreamOptions(enabled=True, store_dir="default"))
    assert load_text("store_dir: one", options=default).options.jetstream.store_dir == "one"
    found = load_text("jetstream {}\nstore_dir: two", options=default).options.jetstream
    assert (found.enabled, found.store_dir) == (True, "two")
    with pytest.raises(ConfigError, match="the first is at config:1:12"):
        load_text("store_dir: one\njetstream { store_dir: two }")
