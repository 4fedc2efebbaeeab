"""A new store with all that can be read of another one."""

import os

from slipstream.engine.consumer.state import encode_state
from slipstream.engine.stream.stream import Stream
from slipstream.errors import StorageError
from slipstream.log.disk import DirectoryLock, OsDisk
from slipstream.log.durability import Touched
from slipstream.log.file_log import FileLog
from slipstream.log.record import Record
from slipstream.log.stream_store import Store, StreamStore
from slipstream.server.store_check.check import Checked, StoreUnavailable

SYNC_BYTES = 16 * 1024 * 1024  # after so many the disk is waited for
SKIPPED_MAX = 1000  # a longer gap begins a new segment


def repair_store(checked: Checked, directory: str) -> None:
    """Write streams, messages under their sequences and times, consumers and positions to a new
    store in `directory`, which appears when all is in it. Raises `StorageError`, OSError."""
    directory = directory.rstrip("/")
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        raise StoreUnavailable(f"{directory} is there already: name a directory that is not")
    partial = directory + ".incomplete"
    if os.path.exists(partial):
        raise StoreUnavailable(f"{partial} is left over from another repair: remove it first")
    os.makedirs(partial, mode=0o700)
    lock = DirectoryLock(partial)
    try:
        disk = OsDisk()
        store = Store(disk, partial)
        for stream in checked.streams():
            _copy_stream(stream, store, disk)
        store.commit_log.apply_all()
        store.commit_log.close()
    finally:
        lock.release()
    os.rename(partial, directory)
    disk.sync_dir(os.path.dirname(os.path.abspath(directory)))


def _copy_stream(stream: Stream, store: Store, disk: OsDisk) -> None:
    files = store.stream(stream.account.name, stream.name)
    files.belongs_to(stream.created)
    files.create(stream.store.meta.load())
    old = stream.log
    assert isinstance(old, FileLog), "a stream that was read from files has a log in files"
    log = files.open_log(old.first_seq)
    try:
        _copy_messages(old, log, stream.config.compression != "none")
    finally:
        log.close()
    _copy_consumers(stream, files, disk)


def _copy_messages(old: FileLog, new: FileLog, packs: bool) -> None:
    """Every message that can be read; others leave a gap, as one that was removed does."""
    new.packs = packs
    record = Record()
    seq = size = 0
    while old.next(seq, None, record):
        seq = record.seq + 1
        _go_to(new, record.seq, record.ts)
        new.append(
            record.subject,
            record.data,
            record.header_start,
            record.body_start,
            record.end,
            record.ts,
        )
        size += record.end
        if size >= SYNC_BYTES:
            _sync(new)
            size = 0
    _go_to(new, old.last_seq + 1, old.last_ts)
    _sync(new)


def _go_to(log: FileLog, seq: int, ts: int) -> None:
    """Have `seq` be the next sequence that is given out."""
    if seq - log.last_seq > SKIPPED_MAX:
        log.advance(seq - 1)
    while log.last_seq + 1 < seq:
        log.skip(ts)


def _sync(log: FileLog) -> None:
    batch = log.prepare_sync()
    if batch is not None:
        batch.run()
        log.finish_sync(batch)
    log.do_jobs()
    if log.failed:
        raise StorageError(log.failed)


def _copy_consumers(stream: Stream, files: StreamStore, disk: OsDisk) -> None:
    touched = Touched()
    for consumer in stream.consumers.values():
        if consumer.store is None:
            continue
        kept = files.consumer(consumer.name, consumer.store.is_ephemeral)
        kept.meta.apply(consumer.store.meta.load(), touched)
        kept.state.save(encode_state(consumer), sync=True)
    if touched.files:
        disk.sync_all(list(touched.files), list(touched.directories))
