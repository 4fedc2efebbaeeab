"""What has to be read from the disk is read elsewhere, and what was asked for is found then."""

import threading
from pathlib import Path
from typing import Any

import pytest

from slipstream.log import os_file
from slipstream.log.cold import ColdError, FetchJob
from slipstream.log.disk import OsDisk
from slipstream.log.file_log import CHUNKS_BYTES_MAX
from slipstream.log.record import Record
from slipstream.log.recovery import open_log
from tests.log.storing import commit, put


def test_a_message_that_a_thread_is_still_writing_is_cold_and_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(OsDisk(), str(tmp_path / "log"))
    put(log, b"s", b"first")
    commit(log)
    body = b"x" * 60_000
    batch = None
    for _ in range(2 * CHUNKS_BYTES_MAX // len(body)):
        put(log, b"s", body)
        batch = log.prepare_sync(batch)
    assert batch is not None
    [segment] = (tmp_path / "log").glob("*.seg")
    segment.read_bytes()  # somebody has the system keep in memory what is there so far
    begun, goes_on = threading.Event(), threading.Event()
    write_blocks = os_file.write_blocks

    def slowly(*args: Any) -> bytes:
        begun.set()
        goes_on.wait(10)
        return write_blocks(*args)

    monkeypatch.setattr(os_file, "write_blocks", slowly)
    thread = threading.Thread(target=batch.flush)
    thread.start()
    begun.wait()
    record = Record()
    try:
        with pytest.raises(ColdError) as cold:
            log.read_near(2, record)
    finally:
        goes_on.set()
        thread.join()
    assert not log.lost.ranges
    fetch = FetchJob(cold.value, lambda: None)
    fetch.run()
    fetch.finish()
    assert log.read_near(2, record)
    assert record.body() == body
