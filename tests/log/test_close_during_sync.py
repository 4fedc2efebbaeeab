"""A file may be closed on the loop while its sync is on its way on a thread."""

from pathlib import Path

from slipstream.log.disk import OsDisk
from slipstream.log.durability import SyncBatch


def test_a_file_that_was_closed_meanwhile_needs_no_sync(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.open(str(tmp_path / "segment"))
    file.append(b"data")
    batch = SyncBatch(disk, [file], [], 1)
    file.close()
    batch.run()
    assert batch.error is None
