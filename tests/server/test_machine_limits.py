"""Sizes that are not given follow the machine (docs/server.md)."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import slipstream.sync
from slipstream import Server
from slipstream.client.jetstream.errors import ApiError
from slipstream.errors import ConfigError
from slipstream.server.config import load_text
from slipstream.server.options import JetStreamOptions

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refused(js: Any, **config: Any) -> int:
    """The code of the error that a stream gets."""
    with pytest.raises(ApiError) as caught:
        js.create_stream(name="S", subjects=["s"], **config)
    return caught.value.err_code


def test_streams_reserve_three_quarters_of_what_there_is_and_no_more(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with (
        Server(store_dir=str(tmp_path / "store")) as server,
        slipstream.sync.connect(server.url) as nc,
    ):
        js = nc.jetstream()
        assert refused(js, max_bytes=free * 9 // 10) == 10047
        assert refused(js, max_bytes=MEMORY * 4 // 5, storage="memory") == 10028
        js.create_stream(name="DISK", subjects=["disk"], max_bytes=free // 2)
        js.create_stream(name="MEMORY", subjects=["m"], max_bytes=MEMORY // 2, storage="memory")
        assert refused(js, max_bytes=free // 2) == 10047
        js.create_stream(name="UNBOUND", subjects=["unbound"])


def test_a_size_that_is_given_bounds_what_is_stored_too() -> None:
    jetstream = JetStreamOptions(enabled=True, max_file_store=64 * 1024)
    with Server(jetstream=jetstream) as server, slipstream.sync.connect(server.url) as nc:
        js = nc.jetstream()
        assert refused(js, max_bytes=65 * 1024) == 10047
        js.create_stream(name="S", subjects=["s"])
        js.publish("s", bytes(40 * 1024))
        with pytest.raises(ApiError) as caught:
            js.publish("s", bytes(40 * 1024))
        assert caught.value.err_code == 10023


def test_a_size_may_come_from_the_environment_and_is_no_percentage() -> None:
    text = "jetstream { store_dir: /nowhere, max_file: $STORE_BYTES }"
    loaded = load_text(text, "server.conf", {"STORE_BYTES": "123456789"})
    assert loaded.options.jetstream.max_file_store == 123456789
    for percentage in ('"50%"', "50%"):
        with pytest.raises(ConfigError, match="a size in quotes is a number and one of"):
            load_text(text.replace("$STORE_BYTES", percentage), "server.conf", {})
